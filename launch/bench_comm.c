/* sheaf bench comm: how fast sums over the ranks are. */
#include <inttypes.h>

#include "job.h"
#include "report.h"

static const char *scope(const SheafCommTiming *t) { return t->between_hosts ? "between hosts" : "in host"; }
static const char *algorithm(const SheafCommTiming *t) { return t->two_shot ? "two-shot" : "one-shot"; }
static double gb_per_s(const SheafCommTiming *t) { return 1e-3 * (double)t->bytes / t->us; }
static double over_mpi(const SheafCommTiming *t) { return t->mpi_us / t->us; }
static double reached(const SheafCommTiming *t) { return t->limit_us / t->us; }

static void add_table(const Job *job, const SheafCommBench *b, StrBuf *out) {
    int hosts = sheaf_hosts(job->rt);
    strbuf_printf(out, "%d ranks on %d host%s, %" PRId64 " round%s", sheaf_ranks(job->rt), hosts, hosts > 1 ? "s" : "",
                  job->o->rounds, job->o->rounds > 1 ? "s" : "");
    if (b->flag_us > 0) strbuf_printf(out, "; a cache line goes one way in %.3f us", b->flag_us);
    if (b->message_us > 0) strbuf_printf(out, "; an empty message in %.2f us", b->message_us);
    strbuf_printf(out, "\n\n%-14s %9s  %-10s %11s %11s %8s %11s %7s %11s %8s\n", "sum", "bytes", "algorithm", "us",
                  "least us", "GB/s", "MPI us", "MPI/us", "limit us", "reached");
    for (int i = 0; i < b->n; i++) {
        const SheafCommTiming *t = &b->row[i];
        strbuf_printf(out, "%-14s %9" PRIu64 "  %-8s %c %11.2f %11.2f %8.3f %11.2f %7.2f %11.2f %8.2f\n", scope(t),
                      t->bytes, algorithm(t), t->chosen ? '*' : ' ', t->us, t->least_us, gb_per_s(t), t->mpi_us,
                      over_mpi(t), t->limit_us, reached(t));
    }
    strbuf_printf(out, "\n*: how sums of this size are made. us: median of the rounds. limit: a bare exchange of the "
                       "data\nthat each rank or host must have from others. reached: limit / us.\n");
}

static void add_row_json(Json *j, const SheafCommTiming *t) {
    json_open(j, NULL, '{');
    json_text(j, "scope", scope(t));
    json_uint(j, "bytes", t->bytes);
    json_text(j, "algorithm", algorithm(t));
    json_bool(j, "chosen", t->chosen);
    json_real(j, "us", t->us);
    json_real(j, "least_us", t->least_us);
    json_real(j, "gb_per_s", gb_per_s(t));
    json_real(j, "mpi_us", t->mpi_us);
    json_real(j, "times_mpi", over_mpi(t));
    json_real(j, "limit_us", t->limit_us);
    json_real(j, "reached", reached(t));
    json_close(j, '}');
}

static void add_json(const Job *job, const SheafCommBench *b, StrBuf *out) {
    Json j = {.out = out};
    json_open(&j, NULL, '{');
    json_int(&j, "ranks", sheaf_ranks(job->rt));
    json_int(&j, "hosts", sheaf_hosts(job->rt));
    json_text(&j, "wire", job->o->wire);
    json_int(&j, "rounds", job->o->rounds);
    json_real(&j, "flag_us", b->flag_us);
    json_real(&j, "message_us", b->message_us);
    json_open(&j, "sums", '[');
    for (int i = 0; i < b->n; i++) add_row_json(&j, &b->row[i]);
    json_close(&j, ']');
    json_close(&j, '}');
    strbuf_add(out, "\n", 1);
}

int bench_comm_verb(Job *job, SheafErr *e) {
    SheafCommBench b;
    if (sheaf_comm_bench(job->rt, (int)job->o->rounds, &b, e)) return -1;
    if (sheaf_rank(job->rt) != 0) return 0;
    StrBuf out = {0};
    if (job->o->json) add_json(job, &b, &out);
    else add_table(job, &b, &out);
    return report_text(&out, e);
}
