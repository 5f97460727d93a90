/* ONNX files: what is read, and what is refused with a line that says why. Files are written here message by message
 * (https://protobuf.dev/programming-guides/encoding, field numbers of onnx.proto). */
#include "graph/onnx.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/strbuf.h"
#include "check.h"
#include "graph/passes.h"

/* ---- messages ---------------------------------------------------------------------------------------------------- */

static void put_varint(StrBuf *b, uint64_t v) {
    for (; v >= 128; v >>= 7) strbuf_add(b, &(char){(char)(v | 128)}, 1);
    strbuf_add(b, &(char){(char)v}, 1);
}
static void put_int(StrBuf *b, int field, int64_t v) {
    put_varint(b, (uint64_t)field << 3);
    put_varint(b, (uint64_t)v);
}
static void put_bytes(StrBuf *b, int field, const void *p, size_t n) {
    put_varint(b, (uint64_t)field << 3 | 2);
    put_varint(b, n);
    strbuf_add(b, p, n);
}
static void put_text(StrBuf *b, int field, const char *s) { put_bytes(b, field, s, strlen(s)); }
/* Takes the inner message. */
static void put_message(StrBuf *b, int field, StrBuf *inner) {
    put_bytes(b, field, inner->data ? inner->data : "", inner->len);
    strbuf_free(inner);
}

enum { FLOAT = 1, INT64 = 7, STRING = 8 };

/* ValueInfoProto: a tensor of that type; -1: an open size named "n". */
static StrBuf port(const char *name, int type, int n_dims, const int64_t *dims) {
    StrBuf shape = {0}, tensor = {0}, of = {0}, value = {0};
    for (int i = 0; i < n_dims; i++) {
        StrBuf dim = {0};
        if (dims[i] == -1) put_text(&dim, 2, "n");
        else put_int(&dim, 1, dims[i]);
        put_message(&shape, 1, &dim);
    }
    put_int(&tensor, 1, type);
    put_message(&tensor, 2, &shape);
    put_message(&of, 1, &tensor);
    put_text(&value, 1, name);
    put_message(&value, 2, &of);
    return value;
}

/* TensorProto with raw data. */
static StrBuf tensor(const char *name, int type, int n_dims, const int64_t *dims, const void *data, size_t n) {
    StrBuf t = {0};
    for (int i = 0; i < n_dims; i++) put_int(&t, 1, dims[i]);
    put_int(&t, 2, type);
    put_text(&t, 8, name);
    if (data) put_bytes(&t, 9, data, n);
    return t;
}

/* NodeProto with up to two inputs and one output; `attributes`: finished fields, taken, or NULL. */
static StrBuf node(const char *kind, const char *a, const char *b, const char *out, StrBuf *attributes) {
    StrBuf n = {0};
    if (a) put_text(&n, 1, a);
    if (b) put_text(&n, 1, b);
    put_text(&n, 2, out);
    put_text(&n, 3, "the node");
    put_text(&n, 4, kind);
    if (attributes) {
        strbuf_add(&n, attributes->data, attributes->len);
        strbuf_free(attributes);
    }
    return n;
}

static void add_ints(StrBuf *node_fields, const char *name, int n, const int64_t *x) {
    StrBuf a = {0};
    put_text(&a, 1, name);
    for (int i = 0; i < n; i++) put_int(&a, 8, x[i]);
    put_int(&a, 20, 7);
    put_message(node_fields, 5, &a);
}

typedef struct File {
    StrBuf graph;
    int64_t opset;
} File;

static File file(void) { return (File){.opset = 13}; }
static void add_node(File *f, StrBuf n) { put_message(&f->graph, 1, &n); }
static void add_input(File *f, StrBuf p) { put_message(&f->graph, 11, &p); }
static void add_output(File *f, StrBuf p) { put_message(&f->graph, 12, &p); }
static void add_tensor(File *f, StrBuf t) { put_message(&f->graph, 5, &t); }

static char folder[64];

/* Writes the model; takes the graph. */
static void write_file(File *f, char *path, size_t size) {
    StrBuf model = {0}, opset = {0};
    put_int(&model, 1, 8);
    put_message(&model, 7, &f->graph);
    put_int(&opset, 2, f->opset);
    put_message(&model, 8, &opset);
    snprintf(path, size, "%s/model.onnx", folder);
    FILE *out = fopen(path, "wb");
    CU_ASSERT_FATAL(out != NULL);
    CU_ASSERT_FATAL(fwrite(model.data, 1, model.len, out) == model.len);
    fclose(out);
    strbuf_free(&model);
}

/* Opens and builds with open sizes of 2. */
static int build(const char *path, Err *e) {
    OnnxModel *m;
    Graph g;
    Nd bound[8] = {{.n_dims = 0}};
    bool by_value[8];
    if (onnx_open(path, &m, e)) return -1;
    for (int i = 0; i < onnx_n_inputs(m) && i < 8; i++) {
        const OnnxPort *p = onnx_input(m, i);
        bound[i].type = p->type;
        bound[i].n_dims = p->n_dims < 0 ? 0 : p->n_dims;
        for (int k = 0; k < p->n_dims; k++) bound[i].dim[k] = p->dim[k] < 0 ? 2 : p->dim[k];
    }
    int status = onnx_build(m, bound, by_value, &g, e);
    if (!status) status = passes_run(&g, QT_A16, e);
    graph_free(&g);
    onnx_close(m);
    return status;
}

static void refused(File *f, const char *what) {
    char path[128];
    Err e = {""};
    write_file(f, path, sizeof path);
    int status = build(path, &e);
    CU_ASSERT_EQUAL(status, -1);
    bool says = strstr(e.msg, what) != NULL && strstr(e.msg, path) != NULL;
    CU_ASSERT(says);
    if (!says) printf("\n\"%s\" lacks \"%s\" or the file's name", e.msg, what);
}

static void accepted(File *f) {
    char path[128];
    Err e = {""};
    write_file(f, path, sizeof path);
    int status = build(path, &e);
    CU_ASSERT_EQUAL(status, 0);
    if (status) printf("\n%s", e.msg);
}

/* x [n, 4] -> y. */
static File with_ports(void) {
    File f = file();
    add_input(&f, port("x", FLOAT, 2, (int64_t[]){-1, 4}));
    add_output(&f, port("y", FLOAT, 2, (int64_t[]){-1, 4}));
    return f;
}

/* ---- the fixtures ------------------------------------------------------------------------------------------------ */

static void test_fixture(void) {
    char path[512];
    Err e = {""};
    OnnxModel *m;
    Graph g;
    CU_ASSERT_FATAL(check_path(path, sizeof path, "SHEAF_FIXTURES", "onnx/net.onnx"));
    CU_ASSERT_FATAL(!onnx_open(path, &m, &e));
    CU_ASSERT(onnx_n_inputs(m) == 1 && onnx_n_outputs(m) == 1 && onnx_opset(m) == 14);
    const OnnxPort *p = onnx_input(m, 0);
    CU_ASSERT(!strcmp(p->name, "image") && p->n_dims == 4 && p->dim[0] == -1 && p->dim[3] == 21);
    CU_ASSERT_STRING_EQUAL(p->symbol[0], "N");
    Nd in = {.type = QT_F32, .n_dims = 4, .dim = {3, 3, 23, 21}};
    CU_ASSERT_FATAL(!onnx_build(m, &in, NULL, &g, &e));
    CU_ASSERT(g.n_outputs == 1 && g.value[g.output[0]].dim[0].size == 3 && g.value[g.output[0]].dim[1].size == 10);
    CU_ASSERT_FATAL(!passes_run(&g, QT_A16, &e));
    int transposes = 0, binaries = 0, pads = 0;
    for (int32_t i = 0; i < g.n_ops; i++) {
        transposes += g.op[i].kind == OP_TRANSPOSE;
        binaries += g.op[i].kind == OP_BINARY || g.op[i].kind == OP_UNARY;
        pads += g.op[i].kind == OP_PAD;
    }
    CU_ASSERT_EQUAL(transposes, 1); /* of the input */
    CU_ASSERT_EQUAL(pads, 0);
    CU_ASSERT_EQUAL(binaries,
                    3); /* the products with the gate and the excitation, and its function; all else is fused */
    graph_free(&g);
    onnx_close(m);
}

/* ---- files that are no good -------------------------------------------------------------------------------------- */

static void test_plain(void) {
    File f = with_ports();
    add_node(&f, node("Relu", "x", NULL, "y", NULL));
    accepted(&f);
}

static void test_order(void) {
    File f = with_ports(); /* a circle */
    add_node(&f, node("Add", "x", "b", "a", NULL));
    add_node(&f, node("Relu", "a", NULL, "b", NULL));
    add_node(&f, node("Relu", "b", NULL, "y", NULL));
    refused(&f, "not in order, or in a circle");
    f = with_ports();
    add_node(&f, node("Relu", "nowhere", NULL, "y", NULL));
    refused(&f, "input nowhere is no value");
    f = with_ports();
    add_node(&f, node("Relu", "x", NULL, "z", NULL));
    refused(&f, "nothing makes the result y");
    f = with_ports();
    add_node(&f, node("Relu", "x", NULL, "y", NULL));
    add_node(&f, node("Abs", "x", NULL, "y", NULL));
    refused(&f, "the name y is given to two values");
    f = with_ports();
    add_node(&f, node("Relu", NULL, NULL, "y", NULL));
    refused(&f, "input 0 is missing");
}

static void test_unknown(void) {
    File f = with_ports();
    add_node(&f, node("Relu", "x", NULL, "a", NULL));
    add_node(&f, node("Wobble", "a", NULL, "b", NULL));
    add_node(&f, node("Wobble", "b", NULL, "c", NULL));
    add_node(&f, node("Grumble", "c", NULL, "y", NULL));
    refused(&f, "operators that are not supported: Wobble (2 times), Grumble");
    f = with_ports();
    f.opset = 99;
    add_node(&f, node("Relu", "x", NULL, "y", NULL));
    refused(&f, "operator set 99");
}

static void test_shapes(void) {
    const float three[3] = {1, 2, 3};
    File f = with_ports();
    add_tensor(&f, tensor("w", FLOAT, 1, (int64_t[]){3}, three, sizeof three));
    add_node(&f, node("Add", "x", "w", "y", NULL));
    refused(&f, "node 0 (Add)");
    f = with_ports();
    add_tensor(&f, tensor("w", FLOAT, 1, (int64_t[]){4}, three, sizeof three));
    add_node(&f, node("Add", "x", "w", "y", NULL));
    refused(&f, "12 bytes of data, its shape needs 16");
    f = with_ports();
    add_tensor(&f, tensor("w", FLOAT, 1, (int64_t[]){-4}, three, sizeof three));
    add_node(&f, node("Add", "x", "w", "y", NULL));
    refused(&f, "size -4 of axis 0 is out of range");
    f = with_ports();
    add_tensor(&f, tensor("w", FLOAT, 3, (int64_t[]){1 << 30, 1 << 30, 1 << 30}, three, sizeof three));
    add_node(&f, node("Add", "x", "w", "y", NULL));
    refused(&f, "out of range");
    f = with_ports();
    add_tensor(&f, tensor("w", STRING, 1, (int64_t[]){3}, three, sizeof three));
    add_node(&f, node("Add", "x", "w", "y", NULL));
    refused(&f, "type 8, which is not supported");
    f = with_ports();
    add_tensor(&f, tensor("w", FLOAT, 9, (int64_t[]){1, 1, 1, 1, 1, 1, 1, 1, 3}, three, sizeof three));
    add_node(&f, node("Add", "x", "w", "y", NULL));
    refused(&f, "9 axes");
}

/* Shapes that chains of operators make: too large, negative, of other sizes, or only known with the data. */
static void test_reshape(void) {
    static const struct {
        int64_t to[3];
        const char *what;
    } cases[] = {{{3, 3, 1}, "another number of elements"},
                 {{-1, -1, 1}, "out of range"},
                 {{-5, 2, 1}, "out of range"},
                 {{INT64_MAX, INT64_MAX, 1}, "out of range"},
                 {{-1, 3, 1}, "another number of elements"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        File f = with_ports();
        add_tensor(&f, tensor("to", INT64, 1, (int64_t[]){3}, cases[i].to, sizeof cases[i].to));
        add_node(&f, node("Reshape", "x", "to", "y", NULL));
        refused(&f, cases[i].what);
    }
    File f = with_ports();
    add_input(&f, port("to", INT64, 1, (int64_t[]){2}));
    add_node(&f, node("Reshape", "x", "to", "y", NULL));
    refused(&f, "the new shape must be constant: here it depends on the data");
    f = with_ports();
    const int64_t huge[2] = {INT64_C(1) << 40, INT64_C(1) << 40};
    add_tensor(&f, tensor("to", INT64, 1, (int64_t[]){2}, huge, sizeof huge));
    add_node(&f, node("ConstantOfShape", "to", NULL, "y", NULL));
    refused(&f, "too large");
}

static void test_windows(void) {
    static const struct {
        int64_t stride[2], pads[4];
        const char *what;
    } cases[] = {{{0, 1}, {0}, "out of range"},
                 {{-1, 1}, {0}, "out of range"},
                 {{1, 1}, {-1, 0, 0, 0}, "padding is out of range"},
                 {{1, 1}, {INT64_MAX, 0, INT64_MAX, 0}, "padding is out of range"},
                 {{INT64_MAX, 1}, {0}, "out of range"}};
    const float nine[9] = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        File f = file();
        StrBuf attributes = {0};
        add_input(&f, port("x", FLOAT, 4, (int64_t[]){1, 1, 5, 5}));
        add_output(&f, port("y", FLOAT, 4, (int64_t[]){1, 1, 5, 5}));
        add_tensor(&f, tensor("w", FLOAT, 4, (int64_t[]){1, 1, 3, 3}, nine, sizeof nine));
        add_ints(&attributes, "strides", 2, cases[i].stride);
        add_ints(&attributes, "pads", 4, cases[i].pads);
        add_node(&f, node("Conv", "x", "w", "y", &attributes));
        refused(&f, cases[i].what);
    }
    File f = file();
    add_input(&f, port("x", FLOAT, 4, (int64_t[]){1, 1, 2, 2}));
    add_output(&f, port("y", FLOAT, 4, (int64_t[]){1, 1, 5, 5}));
    add_tensor(&f, tensor("w", FLOAT, 4, (int64_t[]){1, 1, 3, 3}, nine, sizeof nine));
    add_node(&f, node("Conv", "x", "w", "y", NULL));
    refused(&f, "larger than the padded image");
}

/* ---- data in other files ----------------------------------------------------------------------------------------- */

static StrBuf outside(const char *location, const char *offset) {
    StrBuf t = tensor("w", FLOAT, 1, (int64_t[]){4}, NULL, 0);
    const char *pairs[][2] = {{"location", location}, {"offset", offset}};
    for (int i = 0; i < 2; i++) {
        StrBuf entry = {0};
        put_text(&entry, 1, pairs[i][0]);
        put_text(&entry, 2, pairs[i][1]);
        put_message(&t, 13, &entry);
    }
    put_int(&t, 14, 1);
    return t;
}

static void test_external(void) {
    char path[128];
    const float data[6] = {9, 9, 1, 2, 3, 4};
    snprintf(path, sizeof path, "%s/data.bin", folder);
    FILE *out = fopen(path, "wb");
    CU_ASSERT_FATAL(out && fwrite(data, sizeof data, 1, out) == 1);
    fclose(out);
    snprintf(path, sizeof path, "%s/link", folder);
    CU_ASSERT_FATAL(!symlink("/etc/hostname", path));
    static const struct {
        const char *location, *offset, *what; /* NULL: good */
    } cases[] = {{"data.bin", "8", NULL},
                 {"./data.bin", "0", NULL},
                 {"data.bin", "12", "ends before byte 28"},
                 {"data.bin", "18446744073709551615", "ends before"},
                 {"data.bin", "99999999999999999999", "unusable reference"},
                 {"data.bin", "-8", "unusable reference"},
                 {"missing.bin", "0", "No such file"},
                 {"../../../../etc/hostname", "0", "outside the model's folder"},
                 {"/etc/hostname", "0", ""},
                 {"link", "0", "outside the model's folder"},
                 {".", "0", ""}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        File f = with_ports();
        add_tensor(&f, outside(cases[i].location, cases[i].offset));
        add_node(&f, node("Add", "x", "w", "y", NULL));
        if (cases[i].what) refused(&f, cases[i].what);
        else accepted(&f);
    }
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

/* Messages in messages in messages: a reader that recurses would run out of stack. */
static void test_depth(void) {
    enum { DEEP = 20000 };
    StrBuf inner = {0};
    for (int i = 0; i < DEEP; i++) { /* TypeProto.optional_type.elem_type, over and over */
        StrBuf optional = {0}, type = {0};
        put_message(&optional, 1, &inner);
        put_message(&type, 9, &optional);
        inner = type;
    }
    File f = with_ports();
    StrBuf value = {0};
    put_text(&value, 1, "deep");
    put_message(&value, 2, &inner);
    put_message(&f.graph, 13, &value);
    add_node(&f, node("Relu", "x", NULL, "y", NULL));
    refused(&f, "nested more than");
}

/* Every cut, and many changed bytes: never a crash; what is still a model builds or is refused. */
static void test_damage(void) {
    char path[128];
    const int64_t to[2] = {-1, 2};
    File f = with_ports();
    add_tensor(&f, tensor("to", INT64, 1, (int64_t[]){2}, to, sizeof to));
    add_node(&f, node("Reshape", "x", "to", "a", NULL));
    StrBuf attributes = {0};
    add_ints(&attributes, "perm", 2, (int64_t[]){1, 0});
    add_node(&f, node("Transpose", "a", NULL, "y", &attributes));
    write_file(&f, path, sizeof path);
    FILE *in = fopen(path, "rb");
    uint8_t bytes[4096], changed[4096];
    size_t n = fread(bytes, 1, sizeof bytes, in);
    fclose(in);
    if (n == 0) return;
    uint32_t seed = 7;
    int refusals = 0;
    for (int i = 0; i < (int)n + 3000; i++) {
        size_t size = i < (int)n ? (size_t)i : n;
        memcpy(changed, bytes, n);
        for (int k = 0; size == n && k < 1 + i % 3; k++) {
            seed = seed * 1664525u + 1013904223u;
            changed[(seed >> 8) % n] ^= (uint8_t)(1u << (seed >> 29));
        }
        FILE *out = fopen(path, "wb");
        CU_ASSERT_FATAL(out && fwrite(changed, 1, size, out) == size);
        fclose(out);
        Err e = {""};
        if (build(path, &e)) {
            refusals++;
            CU_ASSERT(e.msg[0] != 0);
        }
    }
    CU_ASSERT(refusals > (int)n);
}

int main(void) {
    strcpy(folder, "/tmp/sheaf_onnx_XXXXXX");
    if (!mkdtemp(folder)) return 2;
    static const CU_TestInfo tests[] = {{"a net", test_fixture},
                                        {"plain", test_plain},
                                        {"order and names", test_order},
                                        {"operators that are not there", test_unknown},
                                        {"tensors", test_shapes},
                                        {"new shapes", test_reshape},
                                        {"windows", test_windows},
                                        {"data in other files", test_external},
                                        {"depth", test_depth},
                                        {"damage", test_damage},
                                        CU_TEST_INFO_NULL};
    int status = check_run("onnx", tests);
    static const char *const files[] = {"model.onnx", "data.bin", "link"};
    for (int i = 0; i < 3; i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        unlink(path);
    }
    rmdir(folder);
    return status;
}
