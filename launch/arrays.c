#include "arrays.h"

#include <inttypes.h>
#include <string.h>

#include "npy.h"
#include "report.h"

/* Numpy's name of each type; it has none for bf16. */
static const struct {
    SheafType type;
    char kind;
    int bytes;
} kinds[] = {{SHEAF_F32, 'f', 4}, {SHEAF_F64, 'f', 8}, {SHEAF_F16, 'f', 2}, {SHEAF_I8, 'i', 1},
             {SHEAF_U8, 'u', 1},  {SHEAF_I16, 'i', 2}, {SHEAF_U16, 'u', 2}, {SHEAF_I32, 'i', 4},
             {SHEAF_U32, 'u', 4}, {SHEAF_I64, 'i', 8}, {SHEAF_U64, 'u', 8}, {SHEAF_BOOL, 'b', 1}};
enum { N_KINDS = sizeof kinds / sizeof kinds[0] };

int64_t array_count(const SheafArray *a) {
    int64_t n = 1;
    for (int i = 0; i < a->n_dims; i++) n *= a->dim[i];
    return n;
}

/* The file's elements stand at any address: they are moved to the start of its memory, which is aligned. */
int array_read(const char *path, StrBuf *file, SheafArray *a, SheafErr *e) {
    Npy n;
    if (report_read(path, file, e)) return -1;
    if (npy_parse((const uint8_t *)file->data, file->len, path, &n, (Err *)(void *)e)) return -1;
    *a = (SheafArray){.type = SHEAF_TYPES, .n_dims = n.n_dims};
    for (int i = 0; i < N_KINDS; i++)
        if (kinds[i].kind == n.kind && kinds[i].bytes == n.bytes) a->type = kinds[i].type;
    if (a->type == SHEAF_TYPES)
        return fail(e, "%s: elements of %d bytes of kind '%c' are not supported", path, n.bytes, n.kind);
    for (int i = 0; i < n.n_dims; i++) a->dim[i] = n.dim[i];
    memmove(file->data, n.data, n.n_bytes);
    a->data = file->data;
    return 0;
}

/* The array as numpy's files describe it; false when they have no such type. */
static bool describe(const SheafArray *a, Npy *n) {
    *n = (Npy){.n_dims = a->n_dims};
    for (int i = 0; i < a->n_dims; i++) n->dim[i] = a->dim[i];
    for (int i = 0; i < N_KINDS; i++)
        if (kinds[i].type == a->type) {
            n->kind = kinds[i].kind;
            n->bytes = kinds[i].bytes;
        }
    return n->bytes != 0;
}

int array_may_write(const char *path, SheafErr *e) {
    NpyFile f;
    int status = npy_file_open(&f, path, &(Npy){.kind = 'f', .bytes = 4}, e);
    npy_file_close(&f);
    return status;
}

int array_write(const char *path, const SheafArray *a, SheafErr *e) {
    Npy n;
    NpyFile f;
    if (!describe(a, &n)) return fail(e, "%s: .npy files have no type %s", path, sheaf_type_name(a->type));
    int status = npy_file_open(&f, path, &n, e);
    if (!status) status = npy_file_write(&f, a->data, (size_t)array_count(a) * (size_t)n.bytes, e);
    if (!status) status = npy_file_finish(&f, e);
    npy_file_close(&f);
    return status;
}

static double half(uint16_t h) { /* IEEE 754 binary16 */
    double sign = h & 0x8000 ? -1 : 1, fraction = h & 1023;
    int exponent = h >> 10 & 31;
    if (exponent == 31) return fraction != 0 ? (double)__builtin_nanf("") : sign * __builtin_inf();
    double scale = 1.0 / 16777216; /* 2^-24 */
    for (int i = 1; i < exponent; i++) scale *= 2;
    return sign * (exponent ? 1024 + fraction : fraction) * scale;
}

double array_get(const SheafArray *a, int64_t i) {
    const void *p = a->data;
    switch (a->type) {
    case SHEAF_F32: return (double)((const float *)p)[i];
    case SHEAF_F64: return ((const double *)p)[i];
    case SHEAF_F16: return half(((const uint16_t *)p)[i]);
    case SHEAF_I8: return ((const int8_t *)p)[i];
    case SHEAF_BOOL:
    case SHEAF_U8: return ((const uint8_t *)p)[i];
    case SHEAF_I16: return ((const int16_t *)p)[i];
    case SHEAF_U16: return ((const uint16_t *)p)[i];
    case SHEAF_I32: return ((const int32_t *)p)[i];
    case SHEAF_U32: return ((const uint32_t *)p)[i];
    case SHEAF_I64: return (double)((const int64_t *)p)[i];
    case SHEAF_U64: return (double)((const uint64_t *)p)[i];
    default: return 0;
    }
}

void array_describe(const SheafArray *a, StrBuf *out) {
    strbuf_printf(out, "%s [", sheaf_type_name(a->type));
    for (int i = 0; i < a->n_dims; i++) strbuf_printf(out, "%s%" PRId64, i ? ", " : "", a->dim[i]);
    strbuf_puts(out, "]");
}

void port_describe(const SheafPort *p, StrBuf *out) {
    strbuf_puts(out, sheaf_type_name(p->type));
    if (p->n_dims < 0) {
        strbuf_puts(out, " of any shape");
        return;
    }
    strbuf_puts(out, " [");
    for (int i = 0; i < p->n_dims; i++) {
        if (i) strbuf_puts(out, ", ");
        if (p->dim[i] >= 0) strbuf_printf(out, "%" PRId64, p->dim[i]);
        else report_add_foreign(out, *p->symbol[i] ? p->symbol[i] : "?");
    }
    strbuf_puts(out, "]");
}
