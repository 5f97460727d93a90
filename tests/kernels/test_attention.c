/* Attention of every table equals ref bit for bit at the edges of blocks, and rows do not depend on their run. */
#include "kernel_data.h"

/* A cache of `n` positions whose blocks stand in a scrambled order; slots past the end hold NaN. */
typedef struct Cache {
    KvShape shape;
    uint8_t *blocks;
    int32_t table[8];
} Cache;

static Cache fill_cache(const Kernels *k, KvShape shape, int64_t n) {
    Cache c = {.shape = shape, .table = {5, 0, 7, 2, 1, 6, 3, 4}};
    size_t bytes = kv_block_bytes(shape);
    int64_t row = shape.kv_heads * shape.head_dim;
    c.blocks = test_alloc(8 * bytes);
    memset(c.blocks, 0xff, 8 * bytes);
    float *key = floats(row), *value = floats(row);
    for (int64_t p = 0; p < n; p++) {
        random_floats(key, row), random_floats(value, row);
        k->kv_store(c.blocks + (size_t)c.table[p / 64] * bytes, shape, (int)(p % 64), key, value);
    }
    free(key), free(value);
    return c;
}

typedef struct Case {
    KvShape shape;
    int group; /* query heads of a KV head */
    int64_t pos0, rows;
    int64_t window;
    float softcap;
    int64_t n_keys;
} Case;

static AttnRun run_of(const Case *c, const Cache *cache, const float *q, float *out, int64_t ld) {
    return (AttnRun){.q = q,
                     .out = out,
                     .ldq = ld,
                     .ldo = ld,
                     .q_head0 = c->group,
                     .q_head1 = 2 * c->group,
                     .kv_head = 1,
                     .scale = 1.0f / sqrtf((float)c->shape.head_dim),
                     .shape = c->shape,
                     .blocks = cache->blocks,
                     .table = cache->table,
                     .pos0 = c->pos0,
                     .n_rows = c->rows,
                     .window = c->window,
                     .softcap = c->softcap,
                     .n_keys = c->n_keys};
}

static void check_case(const Kernels *k, Case c) {
    int64_t ld = 2 * c.group * c.shape.head_dim + 7;
    float *q = floats(c.rows * ld), *want = floats(c.rows * ld), *got = floats(c.rows * ld);
    random_floats(q, c.rows * ld);
    for (int64_t i = 0; i < c.rows * ld; i++) q[i] *= 8.0f;
    Cache cache = fill_cache(k, c.shape, c.n_keys ? c.n_keys : c.pos0 + c.rows);
    AttnRun run = run_of(&c, &cache, q, want, ld);
    ref()->attention(&run);
    run.out = got;
    k->attention(&run);
    CU_ASSERT(same(got, want, c.rows * ld));
    for (int64_t t = 0; t < c.rows; t += 5) { /* one row alone, one head alone */
        float *one = floats(ld);
        AttnRun single = run_of(&c, &cache, q + t * ld, one, ld);
        single.pos0 += t, single.n_rows = 1, single.q_head1 = single.q_head0 + 1;
        k->attention(&single);
        CU_ASSERT(same(one + c.group * c.shape.head_dim, want + t * ld + c.group * c.shape.head_dim, c.shape.head_dim));
        free(one);
    }
    free(q), free(want), free(got), free(cache.blocks);
}

static void edges_of_blocks(void) {
    const int64_t starts[] = {0, 1, 15, 16, 17, 47, 48, 62, 63, 64, 65, 66, 127, 200};
    const int groups[] = {1, 3, 4, 8};
    for (int i = 0; isa(i); i++)
        for (size_t s = 0; s < sizeof starts / sizeof starts[0]; s++)
            for (int g = 0; g < 4; g++) {
                check_case(isa(i), (Case){.shape = {2, 64}, .group = groups[g], .pos0 = starts[s], .rows = ATTN_ROWS});
                check_case(isa(i), (Case){.shape = {2, 64},
                                          .group = groups[g],
                                          .pos0 = starts[s],
                                          .rows = 1 + random_u32() % ATTN_ROWS});
            }
}

static void head_dims(void) {
    const int dims[] = {16, 64, 80, 128, 256};
    for (int i = 0; isa(i); i++)
        for (int d = 0; d < 5; d++)
            for (int64_t rows = 1; rows <= ATTN_ROWS; rows += 5) {
                check_case(isa(i), (Case){.shape = {2, dims[d]}, .group = 1 + d, .pos0 = 58, .rows = rows});
                check_case(isa(i), (Case){.shape = {3, dims[d]}, .group = 9, .pos0 = 201, .rows = rows});
            }
}

/* Windows that begin and end inside a block, at its edges, and are shorter than a run. */
static void windows_and_softcaps(void) {
    const int64_t windows[] = {1, 5, 16, 63, 64, 65, 100, 128, 300};
    const int64_t starts[] = {0, 40, 63, 64, 100, 130, 200, 300};
    for (int i = 0; isa(i); i++)
        for (size_t w = 0; w < sizeof windows / sizeof windows[0]; w++)
            for (size_t s = 0; s < sizeof starts / sizeof starts[0]; s++) {
                check_case(isa(i), (Case){{2, 64}, 4, starts[s], ATTN_ROWS, .window = windows[w]});
                check_case(
                    isa(i),
                    (Case){
                        {2, 32}, 1, starts[s], 1 + random_u32() % ATTN_ROWS, .window = windows[w], .softcap = 30.0f});
                check_case(isa(i), (Case){{2, 32}, 3, starts[s], ATTN_ROWS, .softcap = 5.0f});
            }
}

/* Rows that all see the same keys: before, at and after their own position. */
static void both_directions(void) {
    const int64_t keys[] = {1, 15, 16, 17, 63, 64, 65, 128, 200, 512};
    for (int i = 0; isa(i); i++)
        for (size_t n = 0; n < sizeof keys / sizeof keys[0]; n++)
            for (int64_t pos0 = 0; pos0 < keys[n]; pos0 += ATTN_ROWS) {
                int64_t rows = keys[n] - pos0 < ATTN_ROWS ? keys[n] - pos0 : ATTN_ROWS;
                check_case(isa(i), (Case){{2, 32}, 1, pos0, rows, .n_keys = keys[n]});
                check_case(isa(i), (Case){{2, 64}, 3, pos0, rows, .n_keys = keys[n]});
            }
}

/* Scores that overflow or are infinite or NaN give NaN or the same value in every table. */
static void extreme_scores(void) {
    Case c = {.shape = {2, 32}, .group = 2, .pos0 = 60, .rows = 8};
    int64_t ld = 2 * c.group * c.shape.head_dim;
    const float values[] = {1e30f, 3e38f, INFINITY, NAN, -3e38f, 1e-40f, 0.0f};
    for (int i = 0; isa(i); i++)
        for (int v = 0; v < 7; v++) {
            float *q = floats(c.rows * ld), *want = floats(c.rows * ld), *got = floats(c.rows * ld);
            random_floats(q, c.rows * ld);
            for (int64_t j = 0; j < ld; j++) q[3 * ld + j] *= values[v], q[5 * ld + j] = values[v];
            Cache cache = fill_cache(ref(), c.shape, c.pos0 + c.rows);
            AttnRun run = run_of(&c, &cache, q, want, ld);
            ref()->attention(&run);
            run.out = got;
            isa(i)->attention(&run);
            CU_ASSERT(same(got, want, c.rows * ld));
            free(q), free(want), free(got), free(cache.blocks);
        }
}

static void kv_store_equals_ref(void) {
    KvShape shape = {3, 80};
    size_t bytes = kv_block_bytes(shape);
    float key[240], value[240];
    uint8_t *want = test_alloc(bytes), *got = test_alloc(bytes);
    for (int i = 0; isa(i); i++)
        for (int slot = 0; slot < KV_BLOCK; slot++) {
            random_floats(key, 240), random_floats(value, 240);
            wild_floats(key, 16), wild_floats(value + 100, 16);
            for (int j = 0; j < 32; j++) key[100 + j] *= ldexpf(1.0f, j - 28); /* towards fp16 subnormals */
            ref()->kv_store(want, shape, slot, key, value), isa(i)->kv_store(got, shape, slot, key, value);
            CU_ASSERT(memcmp(got, want, bytes) == 0);
        }
    free(want), free(got);
}

int main(void) {
    CU_TestInfo tests[] = {{"edges of blocks", edges_of_blocks},
                           {"head dimensions", head_dims},
                           {"windows and softcaps", windows_and_softcaps},
                           {"extreme scores", extreme_scores},
                           {"both directions", both_directions},
                           {"kv_store equals ref", kv_store_equals_ref},
                           CU_TEST_INFO_NULL};
    return check_run("attention", tests);
}
