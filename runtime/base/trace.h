/* A log of what each thread did, kept in memory allocated beforehand, written at the end in Chrome's trace format.
 * Off (trace_start not called): trace_now costs a clock read only where callers test trace_on() first. */
#pragma once

#include "base/err.h"

enum { TRACE_NAME = 32 }; /* an event has 64 bytes then */

/* One event: a complete span on one thread. `what` is a string literal. */
typedef struct TraceEvent {
    char name[TRACE_NAME]; /* operator or wait, with its layer: "blk.3.qkv"; cut to fit */
    const char *what;      /* category: "compute", "wire", "wait" */
    uint64_t begin_ns, end_ns;
    uint64_t bytes; /* read or sent; 0: not said */
} TraceEvent;

/* Room for `capacity` events on each of n_threads threads; later ones are counted and dropped. Local. */
int trace_start(int n_threads, size_t capacity, Err *e);
bool trace_on(void);
uint64_t trace_now(void); /* ns, CLOCK_MONOTONIC */
/* `name` is copied: it may be gone (with its graph) when the trace is written. */
void trace_add(int thread, const char *name, const char *what, uint64_t begin_ns, uint64_t bytes); /* ends now */
/* The events as a comma-separated list of JSON objects with pid = rank (no brackets), NUL-terminated, malloc'ed into
 * *out (the caller frees); `shift_ns` is subtracted from each time. Local. */
int trace_json(int rank, const char *host, uint64_t shift_ns, char **out, Err *e);
void trace_stop(void);
