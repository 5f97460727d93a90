#include "network.h"

#include <stdlib.h>
#include <string.h>

enum {
    /* Up to this many bytes on the wire everyone sends everything to everyone (one latency); above, with more than two
     * hosts, reduce-scatter and all-gather (two latencies, 2 (H-1)/H vectors in place of H-1). */
    ONE_SHOT_BYTES = 16384,
    BATCH_BYTES = 1 << 20, /* begun together, of each rank's data in an allgather and of a broadcast */
    BLOCK = 1024,          /* values decoded at a time, so that the decoded ones stay in the L1 or L2 cache */
    TAG_SUM = 1,
    TAG_SHARE,
    TAG_BROADCAST,
    TAG_BARRIER,
    TAG_GATHER, /* + rank */
};

struct Network {
    int host, hosts, n_ranks;
    Wire wire;
    SumWay way;
    size_t room; /* bytes at `receive` */
    Messages *messages;
    uint8_t *send, *receive; /* wire bytes of what this host sends, and of what it receives */
    float *decoded;          /* [hosts][BLOCK] */
    const float **src;       /* [hosts] */
    const Ops *ops;
};

int network_create(const MessagesUse *use, Wire wire, size_t piece_bytes, const Ops *ops, Network **out, Err *e) {
    Network *w = calloc(1, sizeof *w);
    if (!w) return err_set(e, "no memory for the network's state");
    w->host = use->job->host;
    w->hosts = use->job->hosts;
    w->n_ranks = use->job->size;
    w->wire = wire;
    w->ops = ops;
    /* Received at once: everything from everyone in a one-shot sum, else two vectors at most. */
    size_t hosts = (size_t)w->hosts, ranks = (size_t)w->n_ranks,
           room = 2 * piece_bytes + hosts * (ONE_SHOT_BYTES + 256);
    w->room = room;
    /* Begun at once: a sum sends and receives a piece for each host, an allgather a batch for each rank and host. */
    size_t most = hosts * (piece_bytes > ranks * BATCH_BYTES / 2 ? 2 * piece_bytes : ranks * BATCH_BYTES);
    w->send = malloc(piece_bytes);
    w->receive = malloc(room);
    w->decoded = malloc(hosts * BLOCK * sizeof(float));
    w->src = calloc(hosts, sizeof *w->src);
    int rc = w->send && w->receive && w->decoded && w->src ? 0 : -1;
    if (rc) err_set(e, "no memory for the network's buffers (%zu bytes)", room + piece_bytes);
    if (!rc) rc = messages_create(use, most, hosts * (ranks + 2), &w->messages, e);
    if (rc) network_free(w);
    else *out = w;
    return rc;
}

void network_free(Network *w) {
    if (!w) return;
    messages_free(w->messages);
    free(w->send);
    free(w->receive);
    free(w->decoded);
    free(w->src);
    free(w);
}

/* ---- the sum
 * --------------------------------------------------------------------------------------------------------*/

/* One sum's wire: bf16 or fp32, and bytes per value. */
typedef struct Format {
    bool bf16;
    bool rounds; /* the result too */
    size_t size;
} Format;

/* n values as the wire carries them: *out is x itself, or an encoded copy in w->send from value `at` on. */
static const uint8_t *encode(Network *w, Format f, const float *x, size_t at, size_t n) {
    if (!f.bf16) return (const uint8_t *)x;
    uint16_t *to = (uint16_t *)w->send + at;
    w->ops->to_bf16(x, (int64_t)n, to);
    return (const uint8_t *)to;
}

static const uint8_t *received(const Network *w, int host, size_t stride) { return w->receive + (size_t)host * stride; }

/* x[n] = sum in host order of what the wire said: `own` for this host, the received for the others. */
static void combine(Network *w, Format f, const uint8_t *own, size_t stride, size_t n, float *x) {
    for (size_t i = 0; i < n; i += BLOCK) {
        size_t m = n - i < BLOCK ? n - i : BLOCK;
        for (int h = 0; h < w->hosts; h++) {
            const uint8_t *wire = (h == w->host ? own : received(w, h, stride)) + i * f.size;
            w->src[h] = (const float *)wire;
            if (!f.bf16) continue;
            float *to = w->decoded + (size_t)h * BLOCK;
            w->ops->from_bf16((const uint16_t *)wire, (int64_t)m, to);
            w->src[h] = to;
        }
        w->ops->sum(w->src, w->hosts, (int64_t)m, x + i);
        if (!f.rounds) continue;
        uint16_t rounded[BLOCK];
        w->ops->to_bf16(x + i, (int64_t)m, rounded);
        w->ops->from_bf16(rounded, (int64_t)m, x + i);
    }
}

static int sum_one_shot(Network *w, Format f, float *x, size_t n, Err *e) {
    size_t bytes = n * f.size, stride = round_up(bytes, 64);
    const uint8_t *own = encode(w, f, x, 0, n);
    for (int i = 1; i < w->hosts; i++) {
        int from = (w->host - i + w->hosts) % w->hosts;
        if (messages_receive(w->messages, from, TAG_SUM, w->receive + (size_t)from * stride, bytes, e)) return -1;
    }
    for (int i = 1; i < w->hosts; i++)
        if (messages_send(w->messages, (w->host + i) % w->hosts, TAG_SUM, own, bytes, e)) return -1;
    if (messages_finish(w->messages, e)) return -1;
    combine(w, f, own, stride, n, x);
    return 0;
}

/* Every host sums one slice and sends the result to all. */
static int sum_two_shot(Network *w, Format f, float *x, size_t n, Err *e) {
    size_t begin, end, b, t;
    slice_range(n, w->hosts, w->host, &begin, &end);
    size_t mine = end - begin, stride = round_up(mine * f.size, 64);
    const uint8_t *wire = encode(w, f, x, 0, n);
    for (int i = 1; i < w->hosts; i++) {
        int from = (w->host - i + w->hosts) % w->hosts;
        if (mine && messages_receive(w->messages, from, TAG_SUM, w->receive + (size_t)from * stride, mine * f.size, e))
            return -1;
    }
    for (int i = 1; i < w->hosts; i++) {
        int to = (w->host + i) % w->hosts;
        slice_range(n, w->hosts, to, &b, &t);
        if (t > b && messages_send(w->messages, to, TAG_SUM, wire + b * f.size, (t - b) * f.size, e)) return -1;
    }
    if (messages_finish(w->messages, e)) return -1;
    combine(w, f, wire + begin * f.size, stride, mine, x + begin);

    /* x[begin, end) is a bf16 value already where that is the wire: encoding it again is exact. */
    const uint8_t *result = encode(w, f, x + begin, begin, mine);
    uint8_t *all = f.bf16 ? w->receive : (uint8_t *)x;
    for (int i = 1; i < w->hosts; i++) {
        int from = (w->host - i + w->hosts) % w->hosts;
        slice_range(n, w->hosts, from, &b, &t);
        if (t > b && messages_receive(w->messages, from, TAG_SHARE, all + b * f.size, (t - b) * f.size, e)) return -1;
    }
    for (int i = 1; i < w->hosts; i++)
        if (mine && messages_send(w->messages, (w->host + i) % w->hosts, TAG_SHARE, result, mine * f.size, e))
            return -1;
    if (messages_finish(w->messages, e)) return -1;
    if (!f.bf16) return 0;
    w->ops->from_bf16((const uint16_t *)all, (int64_t)begin, x);
    w->ops->from_bf16((const uint16_t *)all + end, (int64_t)(n - end), x + end);
    return 0;
}

static Format format(const Network *w, bool exact) {
    bool bf16 = w->wire == WIRE_BF16 && !exact;
    /* The two-shot sum sends its result rounded; with three hosts or more the one-shot one rounds too, or a value would
     * depend on how many stand beside it in the vector. */
    return (Format){bf16, bf16 && (w->hosts > 2 || w->way == SUM_TWO_SHOT), bf16 ? sizeof(uint16_t) : sizeof(float)};
}

void network_force(Network *w, SumWay way) { w->way = way; }
bool network_one_shot(const Network *w, size_t n, bool exact) {
    size_t bytes = n * format(w, exact).size;
    if (w->way == SUM_CHOSEN) return w->hosts == 2 || bytes <= ONE_SHOT_BYTES;
    return w->way == SUM_ONE_SHOT && round_up(bytes, 64) * (size_t)w->hosts <= w->room;
}

int network_sum(Network *w, float *x, size_t n, bool exact, Err *e) {
    Format f = format(w, exact);
    return network_one_shot(w, n, exact) ? sum_one_shot(w, f, x, n, e) : sum_two_shot(w, f, x, n, e);
}

/* ---- the others
 * -----------------------------------------------------------------------------------------------------*/

int network_broadcast(Network *w, void *data, size_t n, Err *e) {
    for (size_t at = 0; at < n; at += BATCH_BYTES) {
        size_t m = n - at < BATCH_BYTES ? n - at : BATCH_BYTES;
        uint8_t *p = (uint8_t *)data + at;
        if (w->host && messages_receive(w->messages, 0, TAG_BROADCAST, p, m, e)) return -1;
        for (int h = 1; h < w->hosts && !w->host; h++)
            if (messages_send(w->messages, h, TAG_BROADCAST, p, m, e)) return -1;
        if (messages_finish(w->messages, e)) return -1;
    }
    return 0;
}

/* The part of every rank's data that begins `at` bytes into it. */
static int allgather_part(Network *w, size_t n, size_t at, int rank, int owner, uint8_t *data, Err *e) {
    size_t m = n <= at ? 0 : n - at < BATCH_BYTES ? n - at : BATCH_BYTES;
    if (!m) return 0;
    if (owner != w->host) return messages_receive(w->messages, owner, TAG_GATHER + rank, data + at, m, e);
    for (int i = 1; i < w->hosts; i++)
        if (messages_send(w->messages, (w->host + i) % w->hosts, TAG_GATHER + rank, data + at, m, e)) return -1;
    return 0;
}

int network_allgather(Network *w, const size_t *n_bytes, const size_t *offset, const int *host_of, uint8_t *out,
                      Err *e) {
    size_t most = 0;
    for (int r = 0; r < w->n_ranks; r++) most = n_bytes[r] > most ? n_bytes[r] : most;
    for (size_t at = 0; at < most; at += BATCH_BYTES) {
        for (int r = 0; r < w->n_ranks; r++)
            if (allgather_part(w, n_bytes[r], at, r, host_of[r], out + offset[r], e)) return -1;
        if (messages_finish(w->messages, e)) return -1;
    }
    return 0;
}

int network_barrier(Network *w, Err *e) {
    for (int h = 0; h < w->hosts; h++)
        if (h != w->host && messages_receive(w->messages, h, TAG_BARRIER, NULL, 0, e)) return -1;
    for (int h = 0; h < w->hosts; h++)
        if (h != w->host && messages_send(w->messages, h, TAG_BARRIER, NULL, 0, e)) return -1;
    return messages_finish(w->messages, e);
}
