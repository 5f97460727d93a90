"""Small JPEG and PNG files of all kinds, and what Pillow makes of them.

usage: image_reference.py FIXTURES [DATA]

Writes FIXTURES/images/: the files, and
    pixels.txt    file, width, height, and XXH64 (seed 0) of the RGB pixels, row after row, that Pillow reads from it,
                  turned upright and converted to RGB
    resized.txt   file, width, height, filter, and XXH64 of the pixels of Pillow's resize() of it
    normalised.txt  file, layout, and XXH64 of the floats (fp32, little-endian) of (pixel / 255 - mean) / std with
                  ImageNet's mean and std, every step rounded to fp32 as torchvision does it
and, with the folder of the data sets, from every tenth of its photographs,
    photos.txt    file, width, height, XXH64 of the pixels; then XXH64 of the photograph with its short side resized to 160
                  and the central 144 x 128 cut out as torchvision does it: bilinear, bicubic

The pictures are drawn here. Pillow saturates what it converts from 16-bit grey, where it takes the upper byte of each
colour of 16-bit RGB; the upper byte is written for both.
"""

import io
import pathlib
import struct
import sys
import zlib

import numpy as np
import xxhash
from PIL import Image, ImageOps

FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
ORIENTATION = 0x0112


def picture(width: int, height: int, channels: int, seed: int) -> np.ndarray:
    """Slopes, edges and noise, uint8."""
    random = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width] / max(width, height)
    out = np.zeros((height, width, channels))
    for c in range(channels):
        a, b, phase = random.uniform(-3, 3, 3)
        out[..., c] = 128 + 90 * np.sin(4 * (a * x + b * y) + phase)
        disc = (x - random.uniform(0, 1)) ** 2 + (y - random.uniform(0, 1)) ** 2 < 0.08
        out[..., c][disc] = 255 - out[..., c][disc]
    out += random.normal(0, 6, out.shape)
    return out.clip(0, 255).astype(np.uint8)


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def packed(samples: np.ndarray, depth: int) -> bytes:
    """Rows [height][width * channels] of samples, each row behind a filter byte."""
    rows = []
    for row in samples:
        if depth == 16:
            line = row.astype(">u2").tobytes()
        else:
            bits = (row[:, None] >> np.arange(depth - 1, -1, -1)) & 1
            line = np.packbits(bits.astype(np.uint8).reshape(-1)).tobytes()
        rows.append(b"\0" + line)
    return b"".join(rows)


ADAM7 = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]


def png(samples: np.ndarray, depth: int, kind: int, *, before=b"", after=b"", interlaced=False) -> bytes:
    """[height][width][channels] of samples; `before` and `after` the pixels: other chunks. Pillow writes fewer kinds."""
    height, width, _ = samples.shape
    passes = [samples[y::dy, x::dx] for x, y, dx, dy in ADAM7] if interlaced else [samples]
    data = b"".join(packed(p.reshape(p.shape[0], -1), depth) for p in passes if p.size)
    head = struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, interlaced)
    half = len(zlib.compress(data)) // 2  # in two chunks
    compressed = zlib.compress(data)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + before + chunk(b"IDAT", compressed[:half]) +
            chunk(b"IDAT", compressed[half:]) + after + chunk(b"IEND", b""))


def exif(orientation: int, order: str) -> bytes:
    """A TIFF header and one directory of three entries, of which the second is the orientation."""
    entries = [struct.pack(order + "HHIHH", tag, 3, 1, value, 0) for tag, value in
               ((0x0100, 7), (ORIENTATION, orientation), (0x0128, 2))]
    return (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "IH", 8, 3) + b"".join(entries) + bytes(4)


def jpeg(array: np.ndarray, mode: str, **options) -> bytes:
    out = io.BytesIO()
    Image.frombytes(mode, (array.shape[1], array.shape[0]), array.tobytes()).save(out, "JPEG", quality=88, **options)
    return out.getvalue()


def jpeg_files() -> dict[str, bytes]:
    rgb, grey, cmyk = picture(45, 35, 3, 1), picture(45, 35, 1, 2), picture(29, 21, 4, 3)
    files = {f"rgb_{name}.jpg": jpeg(rgb, "RGB", subsampling=sampling)
             for name, sampling in (("444", 0), ("422", 1), ("420", 2))}
    files["progressive.jpg"] = jpeg(rgb, "RGB", progressive=True)
    files["restarts.jpg"] = jpeg(rgb, "RGB", restart_marker_blocks=1)
    files["not_ycc.jpg"] = jpeg(rgb, "RGB", keep_rgb=True)
    files["grey.jpg"] = jpeg(grey, "L")
    files["grey_progressive.jpg"] = jpeg(grey, "L", progressive=True)
    files["cmyk.jpg"] = inks = jpeg(cmyk, "CMYK")
    at = inks.index(b"Adobe") + 11  # the transform: 0 is none, 2 says that the first three are YCC
    assert inks[at] == 0
    files["ycck.jpg"] = inks[:at] + b"\2" + inks[at + 1:]
    files["pixel.jpg"] = jpeg(picture(1, 1, 3, 4), "RGB")
    for orientation in range(1, 9):
        order = "<>"[orientation % 2]
        files[f"exif_{orientation}.jpg"] = jpeg(picture(19, 10, 3, 5), "RGB", exif=b"Exif\0\0" + exif(orientation, order))
    files["exif_9.jpg"] = jpeg(picture(19, 10, 3, 5), "RGB", exif=b"Exif\0\0" + exif(9, "<"))
    return files


def png_files() -> dict[str, bytes]:
    random = np.random.default_rng(6)
    files = {}

    def samples(channels: int, depth: int) -> np.ndarray:
        if depth <= 8:
            return picture(23, 17, channels, 10 * channels + depth) >> (8 - depth)
        low = random.integers(0, 256, (17, 23, channels)).astype(np.uint16)
        return picture(23, 17, channels, 10 * channels + depth).astype(np.uint16) << 8 | low

    colours = chunk(b"PLTE", picture(16, 16, 3, 7).tobytes())
    for depth in (1, 2, 4, 8, 16):
        files[f"grey{depth}.png"] = png(samples(1, depth), depth, 0)
    for depth in (1, 2, 4, 8):
        palette = chunk(b"PLTE", picture(2**depth, 1, 3, depth).tobytes())
        files[f"palette{depth}.png"] = png(samples(1, depth), depth, 3, before=palette)
    for depth in (8, 16):
        files[f"rgb{depth}.png"] = png(samples(3, depth), depth, 2)
        files[f"grey_alpha{depth}.png"] = png(samples(2, depth), depth, 4)
        files[f"rgb_alpha{depth}.png"] = png(samples(4, depth), depth, 6)
    files["palette_alpha.png"] = png(samples(1, 8), 8, 3, before=colours + chunk(b"tRNS", bytes(range(0, 250, 2))))
    files["rgb_one_clear.png"] = png(samples(3, 8), 8, 2, before=chunk(b"tRNS", struct.pack(">HHH", 120, 130, 140)))
    few = chunk(b"PLTE", picture(5, 1, 3, 7).tobytes())
    files["palette_few.png"] = png(samples(1, 4), 4, 3, before=few)  # most pixels have a colour that it lacks
    files["gamma.png"] = png(samples(3, 8), 8, 2, before=chunk(b"gAMA", struct.pack(">I", 100000)))
    for name, (channels, depth, kind) in {"grey1": (1, 1, 0), "rgb8": (3, 8, 2), "rgb_alpha16": (4, 16, 6)}.items():
        files[f"interlaced_{name}.png"] = png(samples(channels, depth), depth, kind, interlaced=True)
    files["interlaced_small.png"] = png(samples(3, 8)[:2, :3], 8, 2, interlaced=True)
    files["exif.png"] = png(samples(3, 8), 8, 2, before=chunk(b"eXIf", exif(6, ">")))
    files["exif_after.png"] = png(samples(3, 8), 8, 2, after=chunk(b"eXIf", exif(8, "<")))
    files["picture.png"] = png(picture(97, 71, 3, 8), 8, 2)
    return files


def upright(source) -> Image.Image:
    image = ImageOps.exif_transpose(Image.open(source))
    if image.mode.startswith("I"):  # 16-bit grey
        return Image.fromarray((np.asarray(image).astype(np.uint16) >> 8).astype(np.uint8)).convert("RGB")
    return image.convert("RGB")


def fingerprint(image: Image.Image) -> str:
    return xxhash.xxh64(image.tobytes()).hexdigest()


def resized_lines(folder: pathlib.Path) -> list[str]:
    sizes = [(97, 71), (96, 71), (97, 72), (48, 35), (64, 47), (224, 164), (1, 1), (1, 71), (97, 1), (33, 200), (200, 33),
             (9, 7), (98, 70), (500, 3), (3, 500), (31, 31)]
    lines = []
    for name in ("picture.png", "grey8.png", "pixel.jpg"):
        image = upright(folder / name)
        for width, height in sizes:
            for label, kind in FILTERS.items():
                lines.append(f"{name} {width} {height} {label} {fingerprint(image.resize((width, height), kind))}")
    return lines


def normalised_lines(folder: pathlib.Path) -> list[str]:
    mean, std = (np.array(v, np.float32) for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    values = np.asarray(upright(folder / "picture.png")).astype(np.float32) / np.float32(255)
    nhwc = np.ascontiguousarray((values - mean) / std)
    assert nhwc.dtype == np.float32
    arrays = {"nhwc": nhwc, "nchw": np.ascontiguousarray(nhwc.transpose(2, 0, 1))}
    return [f"picture.png {layout} {xxhash.xxh64(a.tobytes()).hexdigest()}" for layout, a in arrays.items()]


def cropped(image: Image.Image, kind) -> Image.Image:
    """torchvision's Resize(160) and CenterCrop((128, 144)) of a Pillow image."""
    width, height = image.size
    size = (160, int(160 * height / width)) if width <= height else (int(160 * width / height), 160)
    small = image.resize(size, kind)
    left, top = round((size[0] - 144) / 2.0), round((size[1] - 128) / 2.0)
    return small.crop((left, top, left + 144, top + 128))


def photo_lines(data: pathlib.Path) -> list[str]:
    lines = []
    for path in sorted((data / "cnn" / "images").iterdir())[::10]:
        image = upright(path)
        crops = " ".join(fingerprint(cropped(image, kind)) for kind in FILTERS.values())
        lines.append(f"{path.name} {image.width} {image.height} {fingerprint(image)} {crops}")
    return lines


def main() -> None:
    folder = pathlib.Path(sys.argv[1]) / "images"
    folder.mkdir(exist_ok=True)
    pixels = []
    for name, data in sorted({**jpeg_files(), **png_files()}.items()):
        (folder / name).write_bytes(data)
        image = upright(io.BytesIO(data))
        pixels.append(f"{name} {image.width} {image.height} {fingerprint(image)}")
    (folder / "pixels.txt").write_text("\n".join(pixels) + "\n")
    (folder / "resized.txt").write_text("\n".join(resized_lines(folder)) + "\n")
    (folder / "normalised.txt").write_text("\n".join(normalised_lines(folder)) + "\n")
    if len(sys.argv) > 2:
        (folder / "photos.txt").write_text("\n".join(photo_lines(pathlib.Path(sys.argv[2]))) + "\n")


if __name__ == "__main__":
    main()
