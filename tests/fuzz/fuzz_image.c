/* A file that may be JPEG or PNG: it is read or refused in one line. What was read is resized, cropped and made numbers
 * of, to sizes taken from its last bytes. */
#include <stdlib.h>
#include <string.h>

#include "engine/image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_error(const char *msg, const char *begin) {
    if (strncmp(msg, begin, strlen(begin)) != 0 || !msg[0] || strchr(msg, '\n')) abort();
}

static void prepare(const SheafImage *image, const uint8_t *sizes) {
    SheafPreprocess p = {.scale = 1.0 / 255, .std = {1, 1, 1}, .interpolation = sizes[0] & 1 ? "bicubic" : "bilinear"};
    SheafImage small;
    SheafErr e = {""};
    if (sizes[0] & 2) p.resize = sizes[1];
    else if (sizes[0] & 4) p.resize_width = sizes[1], p.resize_height = sizes[2];
    if (sizes[0] & 8) p.crop_width = sizes[3], p.crop_height = sizes[4];
    if (sheaf_image_fit(image, &p, &small, &e)) {
        check_error(e.msg, "");
        return;
    }
    size_t n = (size_t)(small.width * small.height * 3);
    float *numbers = malloc(n * sizeof *numbers);
    if (!numbers) abort();
    sheaf_image_normalise(&small, &p, numbers);
    for (size_t i = 0; i < n; i++)
        if (!(numbers[i] >= 0 && numbers[i] <= 1)) abort();
    free(numbers);
    sheaf_image_free(&small);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t sizes[5] = {0};
    const ImageBytes in = {.data = data, .n = size, .name = "fuzz", .max_pixels = 1 << 18};
    SheafImage image;
    Err e = {""};
    if (image_decode(&in, &image, &e)) {
        check_error(e.msg, "fuzz: ");
        if (image.rgb) abort();
        return 0;
    }
    if (size >= sizeof sizes) memcpy(sizes, data + size - sizeof sizes, sizeof sizes);
    prepare(&image, sizes);
    sheaf_image_free(&image);
    return 0;
}
