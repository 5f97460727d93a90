#include "base/trace.h"

#include "base/size.h"
#include "base/strbuf.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A thread's own list, on cache lines of its own. */
typedef struct Lane {
    _Alignas(64) TraceEvent *events;
    size_t n, dropped;
} Lane;

/* One trace a process: threads add to it from inside a step, where nothing could be handed down for it cheaply. */
static struct {
    Lane *lanes;
    int n_lanes;
    size_t capacity;
} trace;

bool trace_on(void) { return trace.lanes != NULL; }

uint64_t trace_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

int trace_start(int n_threads, size_t capacity, Err *e) {
    trace_stop();
    size_t bytes;
    if (n_threads < 1 || capacity < 1 || !size_mul(capacity, sizeof(TraceEvent), &bytes))
        return err_set(e, "a trace of %d threads with %zu events each is not possible", n_threads, capacity);
    Lane *lanes = aligned_alloc(64, (size_t)n_threads * sizeof *lanes);
    if (!lanes) return err_set(e, "no memory for a trace of %d threads", n_threads);
    memset(lanes, 0, (size_t)n_threads * sizeof *lanes);
    trace.lanes = lanes;
    trace.n_lanes = n_threads;
    trace.capacity = capacity;
    for (int i = 0; i < n_threads; i++) {
        lanes[i].events = malloc(bytes);
        if (!lanes[i].events) {
            trace_stop();
            return err_set(e, "no memory for %zu trace events on each of %d threads", capacity, n_threads);
        }
        memset(lanes[i].events, 0, bytes); /* page faults now, not inside a step */
    }
    return 0;
}

void trace_add(int thread, const char *name, const char *what, uint64_t begin_ns, uint64_t bytes) {
    if (!trace.lanes || thread < 0 || thread >= trace.n_lanes) return;
    Lane *l = &trace.lanes[thread];
    if (l->n == trace.capacity) {
        l->dropped++;
        return;
    }
    TraceEvent *v = &l->events[l->n++];
    *v = (TraceEvent){.what = what, .begin_ns = begin_ns, .end_ns = trace_now(), .bytes = bytes};
    memcpy(v->name, name, strnlen(name, TRACE_NAME - 1));
}

/* Microseconds with three digits, from nanoseconds that the shift may have made negative. */
static void add_us(StrBuf *s, const char *key, int64_t ns) {
    uint64_t abs = ns < 0 ? 0 - (uint64_t)ns : (uint64_t)ns;
    strbuf_printf(s, ",\"%s\":%s%" PRIu64 ".%03" PRIu64, key, ns < 0 ? "-" : "", abs / 1000, abs % 1000);
}

static void add_event(StrBuf *s, const TraceEvent *v, int rank, int thread, uint64_t shift_ns) {
    strbuf_puts(s, ",\n{\"name\":");
    strbuf_json_text(s, v->name);
    strbuf_puts(s, ",\"cat\":");
    strbuf_json_text(s, v->what);
    strbuf_printf(s, ",\"ph\":\"X\",\"pid\":%d,\"tid\":%d", rank, thread);
    add_us(s, "ts", (int64_t)(v->begin_ns - shift_ns));
    add_us(s, "dur", (int64_t)(v->end_ns - v->begin_ns));
    if (v->bytes) strbuf_printf(s, ",\"args\":{\"bytes\":%" PRIu64 "}", v->bytes);
    strbuf_puts(s, "}");
}

int trace_json(int rank, const char *host, uint64_t shift_ns, char **out, Err *e) {
    StrBuf s = {0}, title = {0};
    size_t dropped = 0;
    strbuf_printf(&title, "rank %d on %s", rank, host);
    strbuf_printf(&s, "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"name\":", rank);
    strbuf_json_text(&s, title.data);
    strbuf_free(&title);
    strbuf_puts(&s, "}}");
    for (int t = 0; t < trace.n_lanes; t++) {
        dropped += trace.lanes[t].dropped;
        for (size_t i = 0; i < trace.lanes[t].n; i++) add_event(&s, &trace.lanes[t].events[i], rank, t, shift_ns);
    }
    if (dropped)
        strbuf_printf(
            &s, ",\n{\"name\":\"process_labels\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"labels\":\"%zu events dropped\"}}",
            rank, dropped);
    return strbuf_take(&s, out, e);
}

void trace_stop(void) {
    for (int i = 0; i < trace.n_lanes; i++) free(trace.lanes[i].events);
    free(trace.lanes);
    memset(&trace, 0, sizeof trace);
}
