"""Fixture for tests/base/test_detmath.c: elementary functions to 60 digits (Decimal and plain series), rounded to double.

usage: detmath_reference.py > FILE   one line each: function, x, y (0 when there is none), result, as C hexadecimal floats
"""
import math
import random
from decimal import Decimal, getcontext

getcontext().prec = 90


def arctan_of_inverse(n: int) -> Decimal:
    total = term = Decimal(1) / n
    k = 1
    while abs(term) > Decimal(10) ** -88:
        term /= -n * n
        k += 2
        total += term / k
    return total


PI = 4 * (4 * arctan_of_inverse(5) - arctan_of_inverse(239))  # Machin


def sine(x: Decimal) -> Decimal:
    x = x % (2 * PI)
    total = term = x
    k = 1
    while abs(term) > Decimal(10) ** -85:
        term *= -x * x / ((k + 1) * (k + 2))
        k += 2
        total += term
    return total


def show(name: str, x: float, y: float, result: Decimal) -> None:
    print(name, x.hex(), y.hex(), float(result).hex())


def main() -> None:
    rng = random.Random(7)
    for _ in range(60):
        x = rng.uniform(-708, 709)
        show("exp", x, 0.0, Decimal(x).exp())
        x = rng.uniform(-1, 1) * 10 ** rng.uniform(-8, 0)
        show("exp", x, 0.0, Decimal(x).exp())
        x = 10 ** rng.uniform(-300, 300)
        show("log", x, 0.0, Decimal(x).ln())
        x = 1 + rng.uniform(-1, 1) * 10 ** rng.uniform(-8, -0.1)
        show("log", x, 0.0, Decimal(x).ln())
        x, y = 10 ** rng.uniform(-6, 8), rng.uniform(-30, 30)
        show("pow", x, y, (Decimal(y) * Decimal(x).ln()).exp())
        x, y = 1 + rng.uniform(-1, 1) * 1e-3, rng.uniform(-6e5, 6e5)
        show("pow", x, y, (Decimal(y) * Decimal(x).ln()).exp())
        for limit in (4.0, 1e3, 1e6, 1e7):
            x = rng.uniform(-limit, limit)
            show("sin", x, 0.0, sine(Decimal(x)))
            show("cos", x, 0.0, sine(Decimal(x) + PI / 2))
    for base in (1e4, 1e5, 5e5, 1e6, 1e7):  # RoPE's: base^(-2i/d)
        for i in range(0, 64, 7):
            y = -2 * i / 128
            show("pow", base, y, (Decimal(y) * Decimal(base).ln()).exp())
    # Doubles next to multiples of pi/2, where the reduction cancels most.
    for n in (1, 2, 3, 355, 22 * 7, 104348, 245850, 636619, 5000003, 6366197):
        x = float(n * PI / 2)
        for near in (x, math.nextafter(x, 0.0), math.nextafter(x, math.inf)):
            show("sin", near, 0.0, sine(Decimal(near)))
            show("cos", near, 0.0, sine(Decimal(near) + PI / 2))


if __name__ == "__main__":
    main()
