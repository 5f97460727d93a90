/* Whether a job can go on, from invented histories: who is blamed, who says so, and when nobody may be. The job has
 * ranks 0 and 1 on host a, 2 and 3 on host b, 4 and 5 on host c; times are in seconds, the deadline is 60, now is 1000.
 */
#include "check.h"
#include "comm/verdict.h"

enum { RANKS = 6, NOW = 1000, DEADLINE = 60 };

static char names[RANKS][COMM_NAME_BYTES] = {"a", "a", "b", "b", "c", "c"};
static int host_of[RANKS] = {0, 0, 1, 1, 2, 2}, local_of[RANKS] = {0, 1, 0, 1, 0, 1};
static Sight sight[RANKS];
static Verdict verdict;

static uint64_t ns(double seconds) { return (uint64_t)(1e9 * seconds); }

/* Everyone beat just now, and came to collective 7 of the same layer `still` seconds ago. */
static void all_wait(double still) {
    for (int q = 0; q < RANKS; q++) {
        sight[q] = (Sight){.heard_ns = ns(NOW), .moved_ns = ns(NOW - still), .calls = 13, .place.text = "blk.3 (sum)"};
    }
}

static int messengers = 1;

static bool over_as(int rank) {
    Job job = {.rank = rank,
               .size = RANKS,
               .host = host_of[rank],
               .hosts = 3,
               .local_rank = local_of[rank],
               .local_size = 2,
               .messengers = messengers,
               .names = names,
               .host_of = host_of,
               .local_of = local_of};
    return verdict_find(&job, sight, ns(NOW), ns(DEADLINE), &verdict);
}

static void expect(int rank, int lost, int speaker, const char *text) {
    CU_ASSERT_TRUE_FATAL(over_as(rank));
    CU_ASSERT_EQUAL(verdict.lost, lost);
    CU_ASSERT_EQUAL(verdict.speaker, speaker);
    if (!strstr(verdict.text, text)) fprintf(stderr, "rank %d says: %s\n", rank, verdict.text);
    CU_ASSERT_PTR_NOT_NULL(strstr(verdict.text, text));
}

static void test_all_is_well(void) {
    all_wait(59);
    for (int q = 0; q < RANKS; q++) CU_ASSERT_FALSE(over_as(q));
    all_wait(61);
    sight[5].moved_ns = ns(NOW - 1); /* one gets on: the others wait for it */
    for (int q = 0; q < RANKS; q++) CU_ASSERT_FALSE(over_as(q));
}

/* Rank 0 is outside of steps and collectives, while somebody types: for hours, as long as it beats. */
static void test_a_user_types(void) {
    all_wait(10000);
    sight[0].calls = 12;
    sight[0].place.text[0] = 0;
    for (int q = 0; q < RANKS; q++) CU_ASSERT_FALSE(over_as(q));
    sight[0].heard_ns = ns(NOW - 61);
    expect(1, 0, 1, "rank 0 on host a has not been heard of for 61 s (it is stopped, or");
    expect(1, 0, 1, "last seen in no step");
}

static void test_stopped(void) {
    all_wait(60.2);
    sight[3].heard_ns = ns(NOW - 60.2);
    for (int q = 0; q < RANKS; q++)
        if (q != 3) expect(q, 3, 0, "rank 3 on host b has not been heard of for 60 s");
    expect(2, 3, 0, "(it is stopped, or starved of CPU or memory); last seen in blk.3 (sum)");
    expect(0, 3, 0, "(it is stopped, or starved of CPU or memory)"); /* the link is whole: rank 2 is heard */
}

/* A whole host falls silent: its first rank stopped, or its link cut. From inside the link it is all the others. */
static void test_a_host_is_silent(void) {
    all_wait(61);
    sight[2].heard_ns = sight[3].heard_ns = ns(NOW - 61);
    expect(0, 2, 0,
           "rank 2 on host b (and 1 more of that host) has not been heard of for 61 s (it is stopped or dead, or");
    all_wait(61);
    for (int q = 0; q < RANKS; q++)
        if (host_of[q] != 1) sight[q].heard_ns = ns(NOW - 61);
    expect(2, 0, 2, "rank 0 on host a (and 1 more of that host)");
    expect(3, 0, 2, "rank 0 on host a (and 1 more of that host)");
}

/* The first rank of host b stopped: its neighbour hears nothing of other hosts either, and does not blame them; nor
 * does it speak, as they will. */
static void test_the_messenger_is_stopped(void) {
    all_wait(61);
    for (int q = 0; q < RANKS; q++)
        if (q != 3) sight[q].heard_ns = ns(NOW - 61);
    expect(3, 2, 0, "rank 2 on host b has not been heard of for 61 s");
    /* With two messengers the second would have heard of the others: then they are silent indeed. */
    messengers = 2;
    expect(3, 0, 3, "rank 0 on host a (and 1 more of that host)");
    messengers = 1;
}

static void test_death_is_seen_at_once(void) {
    all_wait(0);
    sight[1].dead = true;
    expect(0, 1, 0, "rank 1 on host a has died");
    sight[1].left = true; /* it had said goodbye */
    CU_ASSERT_FALSE(over_as(0));
}

/* All live, and none gets on: the one that is behind is to blame. */
static void test_alive_but_stuck(void) {
    all_wait(61);
    sight[4].calls = 12;
    snprintf(sight[4].place.text, sizeof sight[4].place.text, "blk.3.ffn_up (linear)");
    for (int q = 0; q < RANKS; q++) expect(q, 4, 0, "rank 4 on host c is alive but has not got on for 61 s");
    expect(0, 4, 0, "last seen in blk.3.ffn_up (linear)");
    all_wait(61);
    expect(5, 0, 1, "rank 0");
}

/* Between steps, all in the same collective, one not there: it is in none, alive, and may take its time. */
static void test_between_steps(void) {
    all_wait(500);
    for (int q = 0; q < RANKS; q++) sight[q].place.text[0] = 0;
    sight[3].calls = 12;
    CU_ASSERT_FALSE(over_as(0));
    sight[3].calls = 13;
    expect(0, 0, 1, "a wait for the other ranks between steps");
}

static void test_who_has_left_is_not_missed(void) {
    all_wait(0);
    for (int q = 1; q < RANKS; q++) {
        sight[q].left = true;
        sight[q].heard_ns = sight[q].moved_ns = ns(NOW - 500);
    }
    sight[0].calls = 14;
    sight[0].place.text[0] = 0;
    CU_ASSERT_FALSE(over_as(0));
}

int main(void) {
    static const CU_TestInfo tests[] = {{"all is well", test_all_is_well},
                                        {"a user types", test_a_user_types},
                                        {"stopped", test_stopped},
                                        {"a host is silent", test_a_host_is_silent},
                                        {"the messenger is stopped", test_the_messenger_is_stopped},
                                        {"death is seen at once", test_death_is_seen_at_once},
                                        {"alive but stuck", test_alive_but_stuck},
                                        {"between steps", test_between_steps},
                                        {"who has left is not missed", test_who_has_left_is_not_missed},
                                        CU_TEST_INFO_NULL};
    return check_run("comm verdict", tests);
}
