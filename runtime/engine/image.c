#include "image.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/size.h"
#include "engine.h"

enum { LARGEST_FILE = 1 << 28, LARGEST_IMAGE = 1 << 27 };

void sheaf_image_free(SheafImage *i) {
    free(i->rgb);
    *i = (SheafImage){0};
}

int image_allocate(const ImageBytes *in, int64_t width, int64_t height, SheafImage *out, Err *e) {
    if (width < 1 || height < 1 || width > in->max_pixels / height)
        return err_set(e, "%s: %" PRId64 " x %" PRId64 " pixels; from 1 to %" PRId64 " are read", in->name, width,
                       height, in->max_pixels);
    *out = (SheafImage){.width = width, .height = height, .rgb = malloc((size_t)width * (size_t)height * 3)};
    return out->rgb ? 0 : err_set(e, "%s: no memory for %" PRId64 " x %" PRId64 " pixels", in->name, width, height);
}

/* ---- upright ----------------------------------------------------------------------------------------------------- */

/* EXIF's orientation says where the picture's first row and column are to be seen; 5 to 8 are lying on their side. */
static int turn(const ImageBytes *in, int orientation, SheafImage *image, Err *e) {
    static const bool from_right[9] = {[2] = true, [3] = true, [7] = true, [8] = true};
    static const bool from_bottom[9] = {[3] = true, [4] = true, [6] = true, [7] = true};
    const int64_t w = image->width, h = image->height;
    const bool lying = orientation >= 5;
    SheafImage out;
    if (orientation == 1) return 0;
    if (image_allocate(in, lying ? h : w, lying ? w : h, &out, e)) {
        sheaf_image_free(image);
        return -1;
    }
    uint8_t *to = out.rgb;
    for (int64_t y = 0; y < out.height; y++)
        for (int64_t x = 0; x < out.width; x++, to += 3) {
            int64_t column = lying ? y : x, row = lying ? x : y;
            if (from_right[orientation]) column = w - 1 - column;
            if (from_bottom[orientation]) row = h - 1 - row;
            memcpy(to, image->rgb + (row * w + column) * 3, 3);
        }
    sheaf_image_free(image);
    *image = out;
    return 0;
}

/* ---- decoding ---------------------------------------------------------------------------------------------------- */

typedef struct Kind {
    const char *name;
    size_t at; /* of the bytes that tell it */
    const char *bytes;
    size_t n;
    int (*read)(const ImageBytes *in, SheafImage *out, int *orientation, Err *e); /* NULL: known, not supported */
} Kind;

#define BYTES(text) (text), sizeof(text) - 1
static const Kind kinds[] = {
    {"JPEG", 0, BYTES("\xff\xd8\xff"), image_read_jpeg},
    {"PNG", 0, BYTES("\x89PNG\r\n\x1a\n"), image_read_png},
    {"GIF", 0, BYTES("GIF8"), NULL},
    {"WebP", 8, BYTES("WEBP"), NULL},
    {"BMP", 0, BYTES("BM"), NULL},
    {"TIFF", 0, BYTES("II*\0"), NULL},
    {"TIFF", 0, BYTES("MM\0*"), NULL},
    {"AVIF", 4, BYTES("ftypavif"), NULL},
    {"HEIF", 4, BYTES("ftyp"), NULL},
    {"JPEG 2000", 4, BYTES("jP  \r\n"), NULL},
};

int image_decode(const ImageBytes *in, SheafImage *out, Err *e) {
    *out = (SheafImage){0};
    if (in->n == 0) return err_set(e, "%s: is empty", in->name);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const Kind *k = &kinds[i];
        int orientation;
        if (in->n < k->at + k->n || memcmp(in->data + k->at, k->bytes, k->n) != 0) continue;
        if (!k->read) return err_set(e, "%s: looks like %s; only JPEG and PNG are read", in->name, k->name);
        return k->read(in, out, &orientation, e) || turn(in, orientation, out, e) ? -1 : 0;
    }
    return err_set(e, "%s: is neither JPEG nor PNG", in->name);
}

int sheaf_image_decode(const void *bytes, size_t n, const char *name, SheafImage *out, SheafErr *err) {
    const ImageBytes in = {.data = bytes, .n = n, .name = name, .max_pixels = LARGEST_IMAGE};
    return image_decode(&in, out, err_of(err));
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

/* All bytes of an open file into *bytes, malloc'ed. */
static int read_all(int fd, const char *path, uint8_t **bytes, size_t *n, Err *e) {
    struct stat s;
    if (fstat(fd, &s)) return err_errno(e, "%s", path);
    if (!S_ISREG(s.st_mode)) return err_set(e, "%s: is no file", path);
    if (s.st_size > LARGEST_FILE) return err_set(e, "%s: %lld bytes are too many", path, (long long)s.st_size);
    *n = (size_t)s.st_size;
    *bytes = malloc(*n + 1);
    if (!*bytes) return err_set(e, "%s: out of memory", path);
    for (size_t done = 0; done < *n;) {
        ssize_t got = read(fd, *bytes + done, *n - done);
        if (got < 0) return err_errno(e, "%s", path);
        if (got == 0) return err_set(e, "%s: ends before its %zu bytes", path, *n);
        done += (size_t)got;
    }
    return 0;
}

int sheaf_image_read(const char *path, SheafImage *out, SheafErr *err) {
    *out = (SheafImage){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* of a pipe that nobody writes to, open would wait */
    if (fd < 0) return err_errno(err_of(err), "%s", path);
    uint8_t *bytes = NULL;
    size_t n = 0;
    int failed = read_all(fd, path, &bytes, &n, err_of(err));
    close(fd);
    if (!failed) failed = sheaf_image_decode(bytes, n, path, out, err);
    free(bytes);
    return failed;
}
