/* Pictures behind sheaf.h: files' bytes -> pixels. The bytes are untrusted; libjpeg and libpng report what they find by
 * a jump out of their own code, which image_jpeg.c and image_png.c each keep to themselves. All local, reentrant. */
#pragma once

#include "base/err.h"
#include "engine/sheaf.h"

typedef struct ImageBytes {
    const uint8_t *data;
    size_t n;
    const char *name;   /* of the file, for errors */
    int64_t max_pixels; /* larger pictures are refused */
} ImageBytes;

/* Each fills *out, whose rgb is NULL when it fails, and `orientation` (EXIF's 1 to 8; 1 when the file has none). */
int image_read_jpeg(const ImageBytes *in, SheafImage *out, int *orientation, Err *e);
int image_read_png(const ImageBytes *in, SheafImage *out, int *orientation, Err *e);

/* sheaf_image_decode with a limit of its own. */
int image_decode(const ImageBytes *in, SheafImage *out, Err *e);

/* A picture's memory, once its size is known: refuses sizes over the limit. */
int image_allocate(const ImageBytes *in, int64_t width, int64_t height, SheafImage *out, Err *e);

/* The orientation in a block of EXIF (a TIFF file: Exif 2.3, 4.5 and 4.6.4), or 1 where it is damaged or has none. */
int image_exif_orientation(const uint8_t *tiff, size_t n);

/* Pillow's resampling of 8-bit images: a row is the weighted sum of the pixels under a filter that is stretched when
 * the picture shrinks, in fixed point with 22 bits behind the point; first along rows, rounded to 8 bits, then along
 * columns. Where the picture shrinks much more in height than in width, the other way round, as Pillow 13 does it
 * (those before never do; with bicubic that can make a difference of several steps at sharp edges). `cubic`: the cubic
 * convolution of Keys (1981) with a = -1/2, else a triangle. Sizes at least 1. */
int image_resize(const SheafImage *in, int64_t width, int64_t height, bool cubic, SheafImage *out, Err *e);
