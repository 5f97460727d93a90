/* Measuring the exchange between ranks. */
#include "comm/bench.h"

#include "engine/engine.h"

_Static_assert((int)SHEAF_COMM_TIMINGS == (int)COMM_BENCH_ROWS && (int)SHEAF_COMM_ROUNDS == (int)COMM_BENCH_ROUNDS,
               "sheaf.h has the numbers of comm/bench.h");

int sheaf_comm_bench(SheafRuntime *rt, int rounds, SheafCommBench *out, SheafErr *err) {
    CommBench b;
    *out = (SheafCommBench){0};
    if (comm_bench(rt->comm, rounds, &b, err_of(err))) return -1;
    out->flag_us = b.flag_us;
    out->message_us = b.message_us;
    out->n = b.n;
    for (int i = 0; i < b.n; i++) {
        const CommTiming *t = &b.row[i];
        out->row[i] = (SheafCommTiming){.between_hosts = t->between_hosts,
                                        .two_shot = t->two_shot,
                                        .chosen = t->chosen,
                                        .bytes = t->bytes,
                                        .us = t->us,
                                        .least_us = t->least_us,
                                        .mpi_us = t->mpi_us,
                                        .limit_us = t->limit_us};
    }
    return 0;
}
