#include <inttypes.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include <png.h>

#include "base/cursor.h"
#include "base/size.h"
#include "image.h"

enum { MOST_CHUNK_BYTES = 16 << 20, MOST_CHUNKS = 1000 };

typedef struct Reader {
    png_structp png;
    png_infop info;
    const ImageBytes *in;
    Cursor c;
    SheafImage *out;
    int orientation;
    Err *e;
} Reader;

static _Noreturn void fail(png_structp png, const char *text) {
    Reader *r = png_get_error_ptr(png);
    if (text) err_set(r->e, "%s: cannot be read as PNG: %s", r->in->name, text);
    png_longjmp(png, 1);
}

static void ignore(png_structp png, const char *text) {
    (void)png;
    (void)text;
}

static void take(png_structp png, png_bytep to, size_t n) {
    Reader *r = png_get_io_ptr(png);
    const uint8_t *from;
    if (cursor_bytes(&r->c, n, &from, NULL)) {
        err_set(r->e, "%s: the file ends before the picture does", r->in->name);
        fail(png, NULL);
    }
    memcpy(to, from, n);
}

/* Deflate makes at most 1032 bytes of one, so a size that the file could not fill is a lie. */
static void check_size(Reader *r, int64_t width, int64_t height) {
    size_t bytes = png_get_rowbytes(r->png, r->info);
    if (size_mul(bytes, (size_t)height, &bytes) && bytes / 1032 <= r->in->n) return;
    err_set(r->e, "%s: says that it is %" PRId64 " x %" PRId64 ", more than its %zu bytes can hold", r->in->name, width,
            height, r->in->n);
    fail(r->png, NULL);
}

static void start(Reader *r) {
    png_set_read_fn(r->png, r, take);
    png_set_user_limits(r->png, PNG_UINT_31_MAX, PNG_UINT_31_MAX); /* image_allocate has the limit */
    png_set_chunk_malloc_max(r->png, MOST_CHUNK_BYTES);
    png_set_chunk_cache_max(r->png, MOST_CHUNKS);
    png_read_info(r->png, r->info);
    int64_t width = png_get_image_width(r->png, r->info), height = png_get_image_height(r->png, r->info);
    check_size(r, width, height);
    if (image_allocate(r->in, width, height, r->out, r->e)) fail(r->png, NULL);
    png_set_palette_to_rgb(r->png);
    png_set_expand_gray_1_2_4_to_8(r->png);
    png_set_strip_16(r->png);
    png_set_strip_alpha(r->png);
    png_set_gray_to_rgb(r->png);
}

static void read_rows(Reader *r) {
    size_t stride = (size_t)r->out->width * 3;
    int passes = png_set_interlace_handling(r->png);
    png_read_update_info(r->png, r->info);
    if (png_get_rowbytes(r->png, r->info) != stride) fail(r->png, "rows are of another size than the picture");
    for (int pass = 0; pass < passes; pass++)
        for (int64_t y = 0; y < r->out->height; y++) png_read_row(r->png, r->out->rgb + (size_t)y * stride, NULL);
}

/* EXIF may stand before the pixels or after them. */
static void read_end(Reader *r) {
    png_uint_32 n = 0;
    png_bytep exif = NULL;
    png_read_end(r->png, r->info);
    if (png_get_eXIf_1(r->png, r->info, &n, &exif)) r->orientation = image_exif_orientation(exif, n);
}

/* A function of its own: what changes before a jump must not be local to the function that is jumped to. */
static int read_picture(Reader *r) {
    if (setjmp(png_jmpbuf(r->png))) return -1;
    start(r);
    read_rows(r);
    read_end(r);
    return 0;
}

int image_read_png(const ImageBytes *in, SheafImage *out, int *orientation, Err *e) {
    Reader r = {
        .in = in, .c = {.base = in->data, .size = in->n, .name = in->name}, .out = out, .orientation = 1, .e = e};
    *out = (SheafImage){0};
    r.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &r, fail, ignore);
    r.info = r.png ? png_create_info_struct(r.png) : NULL;
    int failed =
        r.info ? read_picture(&r) : err_set(e, "%s: libpng does not start: no memory, or another version", in->name);
    if (failed) sheaf_image_free(out);
    *orientation = r.orientation;
    png_destroy_read_struct(&r.png, &r.info, NULL);
    return failed;
}
