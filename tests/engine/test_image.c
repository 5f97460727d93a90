/* Images: pixels, sizes and crops equal Pillow's to the bit (fixtures/images, made by reference/image_reference.py),
 * and what is cut off, damaged or lies about its size is refused in one line. */
#define XXH_INLINE_ALL
#include <stdint.h>
#include <xxhash.h>

#include "check.h"
#include "engine/image.h"
#include "engine/sheaf.h"

static bool skipped;

static uint64_t fingerprint(const SheafImage *i) { return XXH64(i->rgb, (size_t)(i->width * i->height * 3), 0); }

/* The next line's words into `word`; false at the end of the file. */
static bool next_words(FILE *f, char word[][128], int n) {
    for (int i = 0; i < n; i++)
        if (fscanf(f, "%127s", word[i]) != 1) return false;
    return true;
}

static FILE *open_list(const char *name) {
    char path[1024];
    FILE *f = check_path(path, sizeof path, "SHEAF_FIXTURES", name) ? fopen(path, "r") : NULL;
    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    return f;
}

static void read_fixture(const char *name, SheafImage *image) {
    char path[1024], full[256];
    SheafErr e = {""};
    snprintf(full, sizeof full, "images/%s", name);
    (void)check_path(path, sizeof path, "SHEAF_FIXTURES", full);
    if (sheaf_image_read(path, image, &e)) printf("\n  %s", e.msg);
    CU_ASSERT_PTR_NOT_NULL_FATAL(image->rgb);
}

/* ---- as Pillow does ---------------------------------------------------------------------------------------------- */

static void kinds_of_files(void) {
    char word[4][128];
    FILE *f = open_list("images/pixels.txt");
    int n = 0;
    for (; next_words(f, word, 4); n++) {
        SheafImage image;
        read_fixture(word[0], &image);
        bool equal = image.width == atoll(word[1]) && image.height == atoll(word[2]) &&
                     fingerprint(&image) == strtoull(word[3], NULL, 16);
        if (!equal) printf("\n  %s: other pixels than Pillow's", word[0]);
        CU_ASSERT_TRUE(equal);
        sheaf_image_free(&image);
    }
    CU_ASSERT_TRUE(n >= 40);
    (void)fclose(f);
}

static void sizes_and_filters(void) {
    char word[5][128];
    FILE *f = open_list("images/resized.txt");
    int n = 0;
    for (; next_words(f, word, 5); n++) {
        SheafImage image, small;
        SheafErr e = {""};
        SheafPreprocess p = {.resize_width = atoll(word[1]), .resize_height = atoll(word[2]), .interpolation = word[3]};
        read_fixture(word[0], &image);
        CU_ASSERT_EQUAL_FATAL(sheaf_image_fit(&image, &p, &small, &e), 0);
        bool equal = small.width == p.resize_width && small.height == p.resize_height &&
                     fingerprint(&small) == strtoull(word[4], NULL, 16);
        if (!equal) printf("\n  %s to %s x %s, %s: other pixels than Pillow's", word[0], word[1], word[2], word[3]);
        CU_ASSERT_TRUE(equal);
        sheaf_image_free(&image);
        sheaf_image_free(&small);
    }
    CU_ASSERT_TRUE(n >= 90);
    (void)fclose(f);
}

static const SheafPreprocess imagenet = {
    .scale = 1.0 / 255, .mean = {0.485, 0.456, 0.406}, .std = {0.229, 0.224, 0.225}};

static void numbers(void) {
    char word[3][128];
    FILE *f = open_list("images/normalised.txt");
    int n = 0;
    for (; next_words(f, word, 3); n++) {
        SheafImage image;
        SheafPreprocess p = imagenet;
        p.nhwc = strcmp(word[1], "nhwc") == 0;
        read_fixture(word[0], &image);
        size_t values = (size_t)(image.width * image.height * 3);
        float *out = malloc(values * sizeof *out);
        CU_ASSERT_PTR_NOT_NULL_FATAL(out);
        sheaf_image_normalise(&image, &p, out);
        CU_ASSERT_EQUAL(XXH64(out, values * sizeof *out, 0), strtoull(word[2], NULL, 16));
        free(out);
        sheaf_image_free(&image);
    }
    CU_ASSERT_EQUAL(n, 2);
    (void)fclose(f);
}

/* ---- photographs ------------------------------------------------------------------------------------------------- */

static bool photo_is(const char *path, char word[][128]) {
    static const char *const filters[] = {"bilinear", "bicubic"};
    SheafImage image, small;
    SheafErr e = {""};
    if (sheaf_image_read(path, &image, &e)) return false;
    bool equal = image.width == atoll(word[1]) && image.height == atoll(word[2]) &&
                 fingerprint(&image) == strtoull(word[3], NULL, 16);
    for (int i = 0; i < 2; i++) {
        SheafPreprocess p = {.resize = 160, .crop_width = 144, .crop_height = 128, .interpolation = filters[i]};
        if (sheaf_image_fit(&image, &p, &small, &e)) equal = false;
        else equal = equal && fingerprint(&small) == strtoull(word[4 + i], NULL, 16);
        sheaf_image_free(&small);
    }
    sheaf_image_free(&image);
    return equal;
}

static void photographs(void) {
    char word[6][128], name[256], path[1024];
    if (!check_path(path, sizeof path, "SHEAF_DATA", "")) {
        skipped = true;
        return;
    }
    FILE *f = open_list("images/photos.txt");
    int n = 0;
    for (; next_words(f, word, 6); n++) {
        snprintf(name, sizeof name, "cnn/images/%s", word[0]);
        (void)check_path(path, sizeof path, "SHEAF_DATA", name);
        bool equal = photo_is(path, word);
        if (!equal) printf("\n  %s: other pixels than Pillow's", word[0]);
        CU_ASSERT_TRUE(equal);
    }
    CU_ASSERT_EQUAL(n, 100);
    (void)fclose(f);
}

/* The crops that the reference logits of SHEAF_DATA belong to: [64][224][224][3] behind a header of 128 bytes. */
static void reference_crops(void) {
    enum { N = 64, SIDE = 224, BYTES = SIDE * SIDE * 3, HEADER = 128 };
    static uint8_t want[BYTES];
    char path[1024], line[256], name[300];
    if (!check_path(path, sizeof path, "SHEAF_DATA", "cnn/eval64_u8_nhwc.npy")) return;
    FILE *crops = fopen(path, "rb");
    (void)check_path(path, sizeof path, "SHEAF_DATA", "cnn/eval64_files.txt");
    FILE *names = fopen(path, "r");
    CU_ASSERT_FATAL(crops && names && fseek(crops, HEADER, SEEK_SET) == 0);
    const SheafPreprocess p = {.crop_width = SIDE, .crop_height = SIDE};
    for (int i = 0; i < N; i++) {
        SheafImage image, crop = {0};
        SheafErr e = {""};
        CU_ASSERT_FATAL(fgets(line, sizeof line, names) && fread(want, 1, BYTES, crops) == BYTES);
        snprintf(name, sizeof name, "cnn/images/%.*s", (int)strcspn(line, "\t\n"), line);
        (void)check_path(path, sizeof path, "SHEAF_DATA", name);
        CU_ASSERT_EQUAL_FATAL(sheaf_image_read(path, &image, &e), 0);
        CU_ASSERT_EQUAL_FATAL(sheaf_image_fit(&image, &p, &crop, &e), 0);
        CU_ASSERT_EQUAL(memcmp(crop.rgb, want, BYTES), 0);
        sheaf_image_free(&crop);
        sheaf_image_free(&image);
    }
    CU_ASSERT_EQUAL(fread(want, 1, 1, crops), 0);
    (void)fclose(crops);
    (void)fclose(names);
}

/* ---- bad files --------------------------------------------------------------------------------------------------- */

static uint8_t *load(const char *name, size_t *n) {
    char path[1024], full[256];
    snprintf(full, sizeof full, "images/%s", name);
    (void)check_path(path, sizeof path, "SHEAF_FIXTURES", full);
    FILE *f = fopen(path, "rb");
    CU_ASSERT_FATAL(f && fseek(f, 0, SEEK_END) == 0);
    *n = (size_t)ftell(f);
    rewind(f);
    uint8_t *bytes = malloc(*n);
    CU_ASSERT_FATAL(bytes && fread(bytes, 1, *n, f) == *n);
    (void)fclose(f);
    return bytes;
}

/* Refused, in one line that begins with the name and says `what`. */
static bool refused(const uint8_t *bytes, size_t n, const char *what) {
    SheafImage image;
    SheafErr e = {""};
    uint8_t *exact = malloc(n ? n : 1); /* so that a sanitizer sees a read past the end */
    memcpy(exact, bytes, n);
    int status = sheaf_image_decode(exact, n, "bad.img", &image, &e);
    bool good =
        status == -1 && !image.rgb && !strncmp(e.msg, "bad.img: ", 9) && !strchr(e.msg, '\n') && strstr(e.msg, what);
    if (!good) printf("\n  status %d: '%s', wanted '%s'", status, e.msg, what);
    free(exact);
    sheaf_image_free(&image);
    return good;
}

/* At every byte. In a sequential JPEG the last two are the end marker, whose absence costs no pixel. */
static void cut_off(void) {
    static const struct {
        const char *file;
        size_t spare;
    } cases[] = {{"rgb_420.jpg", 2},    {"progressive.jpg", 0}, {"cmyk.jpg", 2},           {"grey8.png", 0},
                 {"exif_after.png", 0}, {"palette4.png", 0},    {"interlaced_rgb8.png", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t n;
        uint8_t *bytes = load(cases[i].file, &n);
        int bad = 0;
        for (size_t k = 0; k < n - cases[i].spare; k++) bad += !refused(bytes, k, "");
        CU_ASSERT_EQUAL(bad, 0);
        CU_ASSERT_TRUE(refused(bytes, n - cases[i].spare - 1, "the file ends before the picture does"));
        free(bytes);
    }
}

static uint8_t *find(uint8_t *bytes, size_t n, const char *what, size_t n_what) {
    uint8_t *at = memmem(bytes, n, what, n_what);
    CU_ASSERT_PTR_NOT_NULL_FATAL(at);
    return at;
}

static void put16(uint8_t *p, unsigned v) {
    p[0] = (uint8_t)(v >> 8);
    p[1] = (uint8_t)v;
}

/* JPEG's frame header: marker, length, bits, height, width, number of components. */
static void lying_jpeg(void) {
    size_t n;
    uint8_t *bytes = load("rgb_420.jpg", &n), *frame = find(bytes, n, "\xff\xc0", 2);
    put16(frame + 5, 4000);
    CU_ASSERT_TRUE(refused(bytes, n, "cannot be read as JPEG"));
    put16(frame + 5, 65500);
    put16(frame + 7, 65500);
    CU_ASSERT_TRUE(refused(bytes, n, "65500 x 65500 pixels; from 1 to 134217728 are read"));
    put16(frame + 7, 0);
    CU_ASSERT_TRUE(refused(bytes, n, "cannot be read as JPEG"));
    put16(frame + 5, 35);
    put16(frame + 7, 45);
    frame[9] = 2;
    CU_ASSERT_TRUE(refused(bytes, n, ""));
    frame[9] = 3;
    frame[4] = 12;
    CU_ASSERT_TRUE(refused(bytes, n, "12"));
    free(bytes);
}

static uint32_t png_crc(const uint8_t *p, size_t n) { /* ISO 3309, bit by bit */
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < n; i++) {
        crc ^= p[i];
        for (int k = 0; k < 8; k++) crc = crc & 1 ? crc >> 1 ^ 0xedb88320 : crc >> 1;
    }
    return ~crc;
}

static void put32(uint8_t *p, uint32_t v) {
    put16(p, v >> 16);
    put16(p + 2, v & 0xffff);
}

static void png_size(uint8_t *png, uint32_t width, uint32_t height) { /* IHDR lies at 8 */
    put32(png + 16, width);
    put32(png + 20, height);
    put32(png + 29, png_crc(png + 12, 17));
}

static void lying_png(void) {
    size_t n;
    uint8_t *bytes = load("rgb8.png", &n);
    png_size(bytes, 23, 18);
    CU_ASSERT_TRUE(refused(bytes, n, "cannot be read as PNG"));
    png_size(bytes, 10000, 10000);
    CU_ASSERT_TRUE(refused(bytes, n, "says that it is 10000 x 10000, more than its 1258 bytes can hold"));
    png_size(bytes, 0, 17);
    CU_ASSERT_TRUE(refused(bytes, n, "cannot be read as PNG"));
    png_size(bytes, 0x7fffffff, 0x7fffffff);
    CU_ASSERT_TRUE(refused(bytes, n, ""));
    png_size(bytes, 23, 17);
    bytes[60] ^= 1; /* of the compressed pixels */
    CU_ASSERT_TRUE(refused(bytes, n, "cannot be read as PNG"));
    bytes[60] ^= 1;
    bytes[n - 12 - 1] ^= 1; /* the checksum of the last piece of them */
    CU_ASSERT_TRUE(refused(bytes, n, "CRC"));
    free(bytes);
}

/* libjpeg would make grey of what it can not read. */
static void damaged_jpeg(void) {
    size_t n;
    uint8_t *bytes = load("restarts.jpg", &n), *marker = find(bytes, n, "\xff\xd1", 2);
    marker[1] = 0xd5; /* another restart than the next */
    CU_ASSERT_TRUE(refused(bytes, n, "cannot be read as JPEG"));
    marker[1] = 0xd9; /* the end */
    CU_ASSERT_TRUE(refused(bytes, n, "cannot be read as JPEG"));
    free(bytes);
}

/* Nothing but grey, in as many scans as wanted (1 to 127) and all of them lawful: the mean; then each of the 63 other
 * coefficients on its own, but for its last bit; then these bits. The only code, one bit, says that all is zero (ITU-T
 * T.81, G.1 and B.2). */
static size_t many_scans(int scans, uint8_t *to) {
    static const uint8_t start[] = {0xff, 0xd8, 0xff, 0xdb, 0, 67, 0}; /* SOI; DQT: 64 bytes follow */
    static const uint8_t frame[] = {0xff, 0xc2, 0, 11, 8, 0, 8, 0, 8, 1, 1, 0x11, 0};
    static const uint8_t codes[] = {0xff, 0xc4, 0, 20, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    uint8_t *at = to;
    at = (uint8_t *)mempcpy(at, start, sizeof start);
    at = (uint8_t *)memset(at, 1, 64) + 64;
    at = (uint8_t *)mempcpy(at, frame, sizeof frame);
    for (int table = 0; table <= 0x10; table += 0x10) {
        at = (uint8_t *)mempcpy(at, codes, sizeof codes);
        at[4 - (int)sizeof codes] = (uint8_t)table;
    }
    for (int i = 0; i < scans; i++) {
        uint8_t k = (uint8_t)(i == 0 ? 0 : (i - 1) % 63 + 1), bits = i == 0 ? 0 : i <= 63 ? 0x01 : 0x10;
        uint8_t scan[] = {0xff, 0xda, 0, 8, 1, 1, 0, k, k, bits, 0x7f};
        at = (uint8_t *)mempcpy(at, scan, sizeof scan);
    }
    at = (uint8_t *)mempcpy(at, "\xff\xd9", 2);
    return (size_t)(at - to);
}

static void scans_without_end(void) {
    static uint8_t file[4096];
    SheafImage image;
    SheafErr e = {""};
    size_t n = many_scans(100, file);
    CU_ASSERT_EQUAL_FATAL(sheaf_image_decode(file, n, "grey", &image, &e), 0);
    CU_ASSERT_TRUE(image.width == 8 && image.height == 8);
    for (int i = 0; i < 8 * 8 * 3; i++) CU_ASSERT_EQUAL(image.rgb[i], 128);
    sheaf_image_free(&image);
    CU_ASSERT_TRUE(refused(file, many_scans(127, file), "more than 100 scans"));
}

static void other_files(void) {
    CU_ASSERT_TRUE(refused((const uint8_t *)"", 0, "is empty"));
    CU_ASSERT_TRUE(refused((const uint8_t *)"hello", 5, "is neither JPEG nor PNG"));
    CU_ASSERT_TRUE(refused((const uint8_t *)"GIF89a, and more", 16, "looks like GIF; only JPEG and PNG are read"));
    CU_ASSERT_TRUE(refused((const uint8_t *)"RIFF\x10\0\0\0WEBPVP8 ", 16, "looks like WebP"));
    CU_ASSERT_TRUE(refused((const uint8_t *)"\xff\xd8\xff", 3, "the file ends before the picture does"));
    SheafImage image;
    SheafErr e = {""};
    CU_ASSERT_EQUAL(sheaf_image_read("/nowhere/at.jpg", &image, &e), -1);
    CU_ASSERT_STRING_EQUAL(e.msg, "/nowhere/at.jpg: No such file or directory");
    CU_ASSERT_EQUAL(sheaf_image_read("/tmp", &image, &e), -1);
    CU_ASSERT_STRING_EQUAL(e.msg, "/tmp: is no file");
}

static void wishes_that_do_not_fit(void) {
    static const struct {
        SheafPreprocess p;
        const char *what;
    } cases[] = {
        {{.crop_width = 24, .crop_height = 17},
         "24 x 17 pixels cannot be cut from an image of 23 x 17: resize it first"},
        {{.resize = 10, .crop_width = 10, .crop_height = 11}, "an image of 13 x 10"},
        {{.crop_width = -1, .crop_height = 5}, "-1 x 5"},
        {{.resize = 10, .resize_width = 3, .resize_height = 3}, "not both"},
        {{.resize_width = 3}, "3 x 0"},
        {{.resize = 1 << 20}, "sides from 1 to 16384"},
        {{.resize = INT64_MAX}, "too large"},
        {{.resize = -5}, "sides from 1"},
        {{.resize = 5, .interpolation = "lanczos"}, "unknown interpolation 'lanczos': bilinear or bicubic"},
    };
    SheafImage image, out;
    read_fixture("rgb8.png", &image);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        SheafErr e = {""};
        CU_ASSERT_EQUAL(sheaf_image_fit(&image, &cases[i].p, &out, &e), -1);
        CU_ASSERT_PTR_NULL(out.rgb);
        if (!strstr(e.msg, cases[i].what)) printf("\n  '%s', wanted '%s'", e.msg, cases[i].what);
        CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, cases[i].what));
    }
    sheaf_image_free(&image);
}

int main(void) {
    static const CU_TestInfo tests[] = {{"kinds of JPEG and PNG", kinds_of_files},
                                        {"sizes and filters", sizes_and_filters},
                                        {"mean, std and layout", numbers},
                                        {"photographs", photographs},
                                        {"crops of the reference logits", reference_crops},
                                        {"cut off at every byte", cut_off},
                                        {"JPEG that lies about its size", lying_jpeg},
                                        {"PNG that lies about its size", lying_png},
                                        {"damaged JPEG", damaged_jpeg},
                                        {"scans without end", scans_without_end},
                                        {"other files", other_files},
                                        {"sizes that do not fit", wishes_that_do_not_fit},
                                        CU_TEST_INFO_NULL};
    int status = check_run("image", tests);
    if (skipped) printf("skipped: SHEAF_DATA is not set\n");
    return status ? status : skipped ? CHECK_SKIPPED : 0;
}
