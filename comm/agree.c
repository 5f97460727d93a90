#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "checksum.h"
#include "internal.h"
#include "mpi_util.h"

/* "rank 3 (host b), rank 5 (host c)" of the ranks whose value is not `value`, cut to fit. */
static void list_differing(const Comm *c, const uint64_t *values, uint64_t value, char *text, size_t size) {
    size_t used = 0;
    text[0] = 0;
    for (int r = 0; r < c->job.size; r++) {
        if (values[r] == value) continue;
        int n = snprintf(text + used, size - used, "%srank %d (host %s)", used ? ", " : "", r, c->job.names[r]);
        if (n < 0 || (size_t)n >= size - used) return;
        used += (size_t)n;
    }
}

/* The value that most ranks hold; of two as frequent, that of the lower rank. */
static uint64_t usual(const uint64_t *values, int n) {
    int best = 0, best_count = 0;
    for (int r = 0; r < n; r++) {
        int count = 0;
        for (int q = 0; q < n; q++) count += values[q] == values[r];
        if (count > best_count) best = r, best_count = count;
    }
    return values[best];
}

int comm_check(Comm *c, const char *what, size_t n, const void *result, size_t bytes, Err *e) {
    if (!c->check || c->job.size == 1) return 0;
    /* By MPI alone: the check must not go through what it checks. */
    MPI_Request request;
    uint64_t mine = checksum(result, bytes), *all = c->gathered;
    mpi_enter();
    int rc = mpi_ok(MPI_Iallgather(&mine, 1, MPI_UINT64_T, all, 1, MPI_UINT64_T, c->world, &request), "the check", e);
    mpi_leave();
    if (!rc) rc = mpi_wait(&request, 1, NULL, NULL, e);
    uint64_t value = usual(all, c->job.size);
    char who[256];
    list_differing(c, all, value, who, sizeof who);
    if (rc || !who[0]) return rc;
    return err_set(
        e, "check: collective number %" PRIu64 ", %s of %zu: the result is not the same on all ranks: %s differ%s",
        c->stats.calls, what, n, who, strchr(who, ',') ? "" : "s");
}

int comm_same(Comm *c, uint64_t value, const char *what, Err *e) {
    uint64_t *all = c->gathered;
    if (comm_raw_gather_items(c, &value, sizeof value, all, e)) return -1;
    char who[256];
    list_differing(c, all, all[0], who, sizeof who);
    if (!who[0]) return 0;
    return err_set(e, "%s is not the same on all ranks: %s differ%s from rank 0 (%016" PRIx64 ")", what, who,
                   strchr(who, ',') ? "" : "s", all[0]);
}

int comm_min(Comm *c, int64_t value, int64_t *out, Err *e) {
    int64_t *all = (int64_t *)c->gathered;
    if (comm_raw_gather_items(c, &value, sizeof value, all, e)) return -1;
    *out = all[0];
    for (int r = 1; r < c->job.size; r++) *out = i64_min(*out, all[r]);
    return 0;
}

typedef struct Vote {
    uint64_t failed, words; /* words: hash of the message */
} Vote;

/* The message of rank `lowest`, told to all. */
static int tell(Comm *c, int lowest, const Err *mine, Err *out, Err *e) {
    memset(c->sizes, 0, (size_t)c->job.size * sizeof *c->sizes);
    c->sizes[lowest] = sizeof mine->msg;
    return comm_raw_allgather(c, mine->msg, c->sizes, out->msg, e);
}

int(comm_agree)(Comm *c, bool failed, const Err *mine, Err *e) {
    Err own = {0}, told;
    if (failed) snprintf(own.msg, sizeof own.msg, "%s", mine ? mine->msg : "failed");
    if (c->job.size == 1) return failed ? err_set(e, "%s", own.msg) : 0;
    Vote vote = {failed, failed ? checksum(own.msg, strlen(own.msg)) : 0}, *all = (Vote *)c->gathered;
    if (comm_raw_gather_items(c, &vote, sizeof vote, all, e)) return -1;
    int lowest = -1;
    bool unanimous = true;
    for (int r = 0; r < c->job.size; r++) {
        if (lowest < 0 && all[r].failed) lowest = r;
        unanimous = unanimous && all[r].failed && all[r].words == all[0].words;
    }
    if (lowest < 0) return 0;
    if (tell(c, lowest, &own, &told, e)) return -1;
    if (unanimous) return err_set(e, "%s", told.msg);
    return err_set(e, "rank %d on host %s: %s", lowest, c->job.names[lowest], told.msg);
}
