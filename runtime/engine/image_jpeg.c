#include <setjmp.h>
#include <stdio.h> /* jpeglib.h wants FILE */
#include <stdlib.h>
#include <string.h>

#include <jerror.h>
#include <jpeglib.h>

#include "image.h"

/* A progressive file may go over its picture as often as it likes. Encoders make about ten scans. */
enum { MOST_SCANS = 100, EXIF_MARKER = JPEG_APP0 + 1 };

typedef struct Reader {
    struct jpeg_error_mgr errors; /* first, so that libjpeg's pointer to it is one to the reader */
    struct jpeg_progress_mgr progress;
    struct jpeg_decompress_struct jpeg;
    jmp_buf failed;
    const ImageBytes *in;
    SheafImage *out;
    uint8_t *ink; /* a row of CMYK, or NULL */
    int orientation;
    Err *e;
} Reader;

static Reader *reader_of(j_common_ptr jpeg) { return (Reader *)(void *)jpeg->err; }

static void fail(j_common_ptr jpeg) {
    Reader *r = reader_of(jpeg);
    char text[JMSG_LENGTH_MAX];
    r->errors.format_message(jpeg, text);
    if (r->errors.msg_code == JWRN_JPEG_EOF) err_set(r->e, "%s: the file ends before the picture does", r->in->name);
    else err_set(r->e, "%s: cannot be read as JPEG: %s", r->in->name, text);
    longjmp(r->failed, 1);
}

/* libjpeg goes on with grey where the picture's data are damaged or missing, and only warns. Pictures like that would
 * be scored as if they were whole, so they are refused; what says nothing about pixels is not. */
static void message(j_common_ptr jpeg, int level) {
    static const int harmless[] = {JWRN_ADOBE_XFORM, JWRN_EXTRANEOUS_DATA, JWRN_JFIF_MAJOR, JWRN_BOGUS_ICC};
    if (level >= 0) return; /* a trace */
    for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++)
        if (reader_of(jpeg)->errors.msg_code == harmless[i]) return;
    fail(jpeg);
}

static void count_scans(j_common_ptr jpeg) {
    Reader *r = reader_of(jpeg);
    if (r->jpeg.input_scan_number <= MOST_SCANS) return;
    err_set(r->e, "%s: more than %d scans", r->in->name, MOST_SCANS);
    longjmp(r->failed, 1);
}

static int find_orientation(const struct jpeg_decompress_struct *jpeg) {
    static const uint8_t name[6] = "Exif\0";
    for (const struct jpeg_marker_struct *m = jpeg->marker_list; m; m = m->next)
        if (m->marker == EXIF_MARKER && m->data_length >= sizeof name && !memcmp(m->data, name, sizeof name))
            return image_exif_orientation(m->data + sizeof name, m->data_length - sizeof name);
    return 1;
}

/* a * b / 255, rounded. */
static int product(int a, int b) { return (a * b + 127) / 255; }

/* The file's values are inverted, as Adobe's programs write them: 255 is no ink. */
static void mix_inks(const uint8_t *cmyk, int64_t width, uint8_t *rgb) {
    for (int64_t x = 0; x < width; x++, cmyk += 4, rgb += 3)
        for (int i = 0; i < 3; i++) rgb[i] = (uint8_t)(cmyk[3] - product(255 - cmyk[i], cmyk[3]));
}

static void start(Reader *r) {
    struct jpeg_decompress_struct *j = &r->jpeg;
    jpeg_create_decompress(j);
    j->progress = &r->progress;
    jpeg_mem_src(j, r->in->data, (unsigned long)r->in->n);
    jpeg_save_markers(j, EXIF_MARKER, 0xffff);
    (void)jpeg_read_header(j, TRUE);
    r->orientation = find_orientation(j);
    bool known = j->num_components == 1 || j->num_components == 3 || j->num_components == 4;
    if (!known) {
        err_set(r->e, "%s: %d colour components; JPEG has 1, 3 or 4", r->in->name, j->num_components);
        longjmp(r->failed, 1);
    }
    if (image_allocate(r->in, j->image_width, j->image_height, r->out, r->e)) longjmp(r->failed, 1);
    j->out_color_space = j->num_components == 4 ? JCS_CMYK : JCS_RGB;
    j->dct_method = JDCT_ISLOW;
    if (j->num_components != 4) return;
    r->ink = malloc((size_t)j->image_width * 4);
    if (r->ink) return;
    err_set(r->e, "%s: out of memory", r->in->name);
    longjmp(r->failed, 1);
}

static void read_rows(Reader *r) {
    struct jpeg_decompress_struct *j = &r->jpeg;
    (void)jpeg_start_decompress(j);
    while (j->output_scanline < j->output_height) {
        uint8_t *rgb = r->out->rgb + (size_t)j->output_scanline * (size_t)r->out->width * 3;
        JSAMPROW row = r->ink ? r->ink : rgb;
        (void)jpeg_read_scanlines(j, &row, 1);
        if (r->ink) mix_inks(r->ink, r->out->width, rgb);
    }
}

/* A function of its own: what changes before a jump must not be local to the function that is jumped to. */
static int read_picture(Reader *r) {
    if (setjmp(r->failed)) return -1;
    start(r);
    read_rows(r);
    return 0;
}

int image_read_jpeg(const ImageBytes *in, SheafImage *out, int *orientation, Err *e) {
    Reader r = {.in = in, .out = out, .orientation = 1, .e = e, .progress = {.progress_monitor = count_scans}};
    *out = (SheafImage){0};
    r.jpeg.err = jpeg_std_error(&r.errors);
    r.errors.error_exit = fail;
    r.errors.emit_message = message;
    int failed = read_picture(&r);
    if (failed) sheaf_image_free(out);
    *orientation = r.orientation;
    free(r.ink);
    jpeg_destroy_decompress(&r.jpeg);
    return failed;
}
