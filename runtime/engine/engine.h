/* What stands behind sheaf.h's opaque types. */
#pragma once

#include "base/pool.h"
#include "comm/comm.h"
#include "engine/exec.h"
#include "engine/sheaf.h"
#include "engine/tokenizer.h"
#include "graph/arch.h"
#include "graph/onnx.h"

/* SheafErr and Err are the same struct under two names, so that sheaf.h needs no other header. */
_Static_assert(sizeof(SheafErr) == sizeof(Err), "SheafErr is Err");
static inline Err *err_of(SheafErr *e) { return (Err *)(void *)e; }
static inline const Err *err_of_const(const SheafErr *e) { return (const Err *)(const void *)e; }

struct SheafRuntime {
    Comm *comm;
    Pool *pool;
    SheafPlace *place; /* [ranks] */
    char *warning;     /* about the launcher's binding; "": none */
    const Kernels *k;
    QType activations; /* what meets quantised weights */
    char *trace;       /* file, or NULL */
    uint64_t trace_zero;
    void (*lost)(void *arg, const SheafErr *why); /* the caller's */
    void (*warn)(void *arg, const SheafErr *what);
    void *arg;
};

struct SheafModel {
    SheafRuntime *rt;
    OnnxModel *onnx;           /* of a net; what follows until `content` is then empty */
    SheafPort *input, *result; /* of a net; owned */
    ModelFile *file;
    Tokenizer *tokenizer;
    Graph graph; /* after the passes, before partitioning */
    LmShape shape;
    uint64_t content; /* a hash over samples of the file, to notice that ranks have different ones */
    SheafModelInfo info;
    char *strings; /* owned text of the info */
};

/* Decides where this rank's threads run, starts them, and tells all ranks (placement.c). Collective. */
int runtime_place(SheafRuntime *rt, const SheafRuntimeOptions *o, Err *e);
/* Where the threads of `ranks` unbound ranks would run on this machine, into `places` (SheafPlanRank.place); and the
 * machine in a line. Local. */
int placement_plan(int ranks, SheafPlanRank *places, char *machine, size_t size, Err *e);

/* Fills m->info from the file (model.c). */
int model_describe(SheafModel *m, Err *e);
/* A net's file: opens and describes it (net_model.c). */
int net_model_open(SheafModel *m, const char *path, Err *e);
void net_model_close(SheafModel *m);
/* The library's types under sheaf.h's names. */
SheafType net_type(QType t);
QType net_qtype(SheafType t);
