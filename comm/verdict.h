/* Whether the job can still go on, from what was seen of each rank, and the line that says why not. Pure: a test can
 * hand in any history. */
#pragma once

#include "comm.h"

/* The ranks of a job and their hosts. */
typedef struct Job {
    int rank, size, host, hosts, local_rank, local_size; /* this rank's, and how many */
    int messengers;                 /* the first ranks of each host that send signs of life to other hosts */
    char (*names)[COMM_NAME_BYTES]; /* [size]: each rank's host */
    int *host_of;                   /* [size] */
    int *local_of;                  /* [size]: each rank's number within its host */
} Job;

/* What this rank has seen of another. */
typedef struct Sight {
    uint64_t heard_ns, moved_ns; /* when it last gave a sign of life, and when it last got on */
    uint64_t calls;              /* 2 n + 1 inside collective n, else 2 n */
    bool left, dead;
    CommPlace place; /* empty: outside of a step */
} Sight;

typedef struct Verdict {
    int lost;    /* the rank to blame */
    int speaker; /* the lowest rank that can say so */
    char text[400];
} Verdict;

/* True: the job cannot go on, and *out says why. That is so when a rank is dead; when nothing was heard of one for the
 * deadline; when nobody has got on for the deadline although all are inside a step or a collective. (A rank outside,
 * such as rank 0 while a user types, may take any time as long as it gives signs of life.) Local. */
bool verdict_find(const Job *job, const Sight *sight, uint64_t now_ns, uint64_t deadline_ns, Verdict *out);
/* The lowest rank other than `lost` that is not silent. */
int verdict_speaker(const Job *job, const Sight *sight, uint64_t now_ns, uint64_t deadline_ns, int lost);
