/* Elementary functions from plain IEEE double operations, in a fixed order: the same bits on every CPU, where a libm
 * picks variants (with or without FMA) by the CPU it runs on. For tables such as RoPE's, not for speed. All local.
 *
 * Errors measured against 80-digit arithmetic (tests/base/test_detmath.c): det_exp, det_log, det_pow below 1e-15
 * relative (where the result is a normal number), det_sin, det_cos below 1e-15 absolute for |x| <= 1e7. */
#pragma once

double det_exp(double x);           /* infinity above 709.78, 0 below -745.13 */
double det_log(double x);           /* -infinity at 0, NaN below */
double det_pow(double x, double y); /* x > 0, or x == 0 with any y; NaN for x < 0 */
double det_sin(double x);           /* NaN for |x| > 1e7: the reduction to [-pi/4, pi/4] is not exact beyond */
double det_cos(double x);
