/* The sampler against expectations derived by hand: the first numbers of splitmix64 from seed 1234567 are published
 * (https://rosettacode.org/wiki/Pseudo-random_numbers/Splitmix64), so over equal logits the choice is known; the
 * filters are checked on distributions small enough to cut by hand; frequencies against softmax computed here in
 * double. */
#include <math.h>

#include "check.h"
#include "engine/sheaf.h"

static SheafSampler *sampler(float temperature, int top_k, float top_p, float min_p, uint64_t seed) {
    SheafSampler *s = NULL;
    SheafErr err;
    SheafSampling o = {temperature, top_k, top_p, min_p, seed};
    CU_ASSERT_EQUAL_FATAL(sheaf_sampler_new(&o, &s, &err), 0);
    return s;
}

/* A result whose candidates are 100, 101, ... with these probabilities (descending). */
static SheafResult result(const double *probability, int n) {
    SheafResult r = {.n_top = n, .target_logit = NAN};
    for (int i = 0; i < n; i++) {
        r.id[i] = 100 + i;
        r.logit[i] = (float)log(probability[i]) + 3;
    }
    return r;
}

/* Which of the candidates come in 4000 draws, as a bit mask. */
static unsigned drawn(SheafSampler *s, const SheafResult *r) {
    unsigned mask = 0;
    for (int i = 0; i < 4000; i++) mask |= 1u << (sheaf_sample(s, r, NULL, 0) - 100);
    sheaf_sampler_free(s);
    return mask;
}

static void greedy_takes_the_first(void) {
    const double p[] = {0.4, 0.4, 0.2};
    SheafResult r = result(p, 3);
    SheafSampler *s = sampler(0, 40, 0.95f, 0.05f, 7);
    CU_ASSERT_FALSE(sheaf_sampler_wants_logits(s));
    for (int i = 0; i < 10; i++) CU_ASSERT_EQUAL(sheaf_sample(s, &r, NULL, 0), 100);
    sheaf_sampler_free(s);
}

/* Over 64 equal candidates the choice is the top 6 bits of the random number. */
static void numbers_are_splitmix64(void) {
    static const uint64_t published[] = {6457827717110365317u, 3203168211198807973u, 9817491932198370423u,
                                         4593380528125082431u, 16408922859458223821u};
    SheafResult r = {.n_top = SHEAF_TOP};
    for (int i = 0; i < SHEAF_TOP; i++) {
        r.id[i] = i;
        r.logit[i] = 1.5f;
    }
    SheafSampler *s = sampler(1, SHEAF_TOP, 1, 0, 1234567);
    for (size_t i = 0; i < sizeof published / sizeof published[0]; i++)
        CU_ASSERT_EQUAL(sheaf_sample(s, &r, NULL, 0), (int32_t)(published[i] >> 58));
    sheaf_sampler_free(s);
}

static void filters_cut_where_they_say(void) {
    const double p[] = {0.4, 0.3, 0.2, 0.06, 0.04};
    SheafResult r = result(p, 5);
    CU_ASSERT_EQUAL(drawn(sampler(1, 0, 1, 0, 1), &r), 0x1F);
    CU_ASSERT_EQUAL(drawn(sampler(1, 2, 1, 0, 1), &r), 0x03);
    CU_ASSERT_EQUAL(drawn(sampler(1, 1, 1, 0, 1), &r), 0x01);
    /* 0.4, 0.7, 0.9, 0.96, 1: the first sum that reaches p ends the list. */
    CU_ASSERT_EQUAL(drawn(sampler(1, 0, 0.69f, 0, 1), &r), 0x03);
    CU_ASSERT_EQUAL(drawn(sampler(1, 0, 0.71f, 0, 1), &r), 0x07);
    CU_ASSERT_EQUAL(drawn(sampler(1, 0, 0.01f, 0, 1), &r), 0x01);
    /* Of the largest, 0.4: 1, 0.75, 0.5, 0.15, 0.1. */
    CU_ASSERT_EQUAL(drawn(sampler(1, 0, 1, 0.49f, 1), &r), 0x07);
    CU_ASSERT_EQUAL(drawn(sampler(1, 0, 1, 0.51f, 1), &r), 0x03);
    CU_ASSERT_EQUAL(drawn(sampler(1, 0, 1, 1, 1), &r), 0x01);
}

/* top-p takes its share of what top-k left: of 0.4 and 0.3 the first has 0.571. */
static void top_k_comes_before_top_p(void) {
    const double p[] = {0.4, 0.3, 0.2, 0.06, 0.04};
    SheafResult r = result(p, 5);
    CU_ASSERT_EQUAL(drawn(sampler(1, 2, 0.56f, 0, 1), &r), 0x01);
    CU_ASSERT_EQUAL(drawn(sampler(1, 0, 0.56f, 0, 1), &r), 0x03);
}

/* The temperature comes last: however high, it brings nothing back, and however low, it takes nothing from the list. */
static void temperature_comes_last(void) {
    const double p[] = {0.4, 0.3, 0.2, 0.06, 0.04};
    SheafResult r = result(p, 5);
    CU_ASSERT_EQUAL(drawn(sampler(100, 0, 0.71f, 0, 1), &r), 0x07);
    CU_ASSERT_EQUAL(drawn(sampler(100, 0, 1, 0.49f, 1), &r), 0x07);
    CU_ASSERT_EQUAL(drawn(sampler(1e-30f, 0, 1, 0, 1), &r), 0x01);
}

static void check_frequencies(float temperature, const float *logits, int n, const SheafResult *r) {
    enum { DRAWS = 100000 };
    int count[8] = {0};
    double total = 0;
    SheafSampler *s = sampler(temperature, 0, 1, 0, 99);
    for (int i = 0; i < DRAWS; i++) count[sheaf_sample(s, r, r ? NULL : logits, n)]++;
    for (int i = 0; i < n; i++) total += exp((double)logits[i] / (double)temperature);
    for (int i = 0; i < n; i++) {
        double p = exp((double)logits[i] / (double)temperature) / total;
        /* Five standard deviations of a binomial. */
        CU_ASSERT(fabs(count[i] - DRAWS * p) < 5 * sqrt(DRAWS * p * (1 - p)) + 1);
    }
    sheaf_sampler_free(s);
}

static void frequencies_are_softmax(void) {
    static const float logits[] = {0.5f, -1, 2, 1.25f, -30};
    static const int order[] = {2, 3, 0, 1, 4};
    SheafResult r = {.n_top = 5};
    for (int i = 0; i < 5; i++) {
        r.id[i] = order[i];
        r.logit[i] = logits[order[i]];
    }
    check_frequencies(1, logits, 5, &r);
    check_frequencies(0.7f, logits, 5, &r);
    check_frequencies(3, logits, 5, &r);
    check_frequencies(1.5f, logits, 5, NULL);
}

/* A whole row of logits in any order gives what the sorted candidates give: same seed, same tokens. */
static void logits_and_candidates_agree(void) {
    enum { N = 60 };
    float logits[N];
    SheafResult r = {.n_top = N};
    for (int i = 0; i < N; i++) {
        int place = i * 7 % N; /* 7 and 60 have no common factor: every id once */
        logits[place] = 4 - 0.125f * (float)i;
        r.id[i] = place;
        r.logit[i] = logits[place];
    }
    SheafSampler *a = sampler(0.9f, 0, 0.9f, 0.02f, 5), *b = sampler(0.9f, 0, 0.9f, 0.02f, 5);
    CU_ASSERT(sheaf_sampler_wants_logits(a));
    for (int i = 0; i < 1000; i++) CU_ASSERT_EQUAL(sheaf_sample(a, &r, NULL, 0), sheaf_sample(b, &r, logits, N));
    sheaf_sampler_free(a);
    sheaf_sampler_free(b);
}

static void logits_are_wanted_past_the_candidates(void) {
    SheafSampler *a = sampler(1, SHEAF_TOP, 0.9f, 0, 0), *b = sampler(1, SHEAF_TOP + 1, 0.9f, 0, 0);
    SheafSampler *c = sampler(1, 0, 0.9f, 0, 0), *d = sampler(0, 0, 0.9f, 0, 0);
    CU_ASSERT_FALSE(sheaf_sampler_wants_logits(a));
    CU_ASSERT_TRUE(sheaf_sampler_wants_logits(b));
    CU_ASSERT_TRUE(sheaf_sampler_wants_logits(c));
    CU_ASSERT_FALSE(sheaf_sampler_wants_logits(d));
    sheaf_sampler_free(a);
    sheaf_sampler_free(b);
    sheaf_sampler_free(c);
    sheaf_sampler_free(d);
}

static void bad_values_are_refused_by_name(void) {
    static const struct {
        SheafSampling o;
        const char *name;
    } bad[] = {
        {{-1, 0, 1, 0, 0}, "temperature"}, {{NAN, 0, 1, 0, 0}, "temperature"}, {{INFINITY, 0, 1, 0, 0}, "temperature"},
        {{1, -1, 1, 0, 0}, "top-k"},       {{1, 0, 2, 0, 0}, "top-p"},         {{1, 0, 0, 0, 0}, "top-p"},
        {{1, 0, NAN, 0, 0}, "top-p"},      {{1, 0, 1, -0.1f, 0}, "min-p"},     {{1, 0, 1, 1.1f, 0}, "min-p"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        SheafSampler *s;
        SheafErr err = {""};
        CU_ASSERT_EQUAL(sheaf_sampler_new(&bad[i].o, &s, &err), -1);
        CU_ASSERT_PTR_NULL(s);
        CU_ASSERT_PTR_NOT_NULL(strstr(err.msg, bad[i].name));
    }
}

int main(void) {
    static const CU_TestInfo tests[] = {
        {"greedy takes the first", greedy_takes_the_first},
        {"the numbers are splitmix64's", numbers_are_splitmix64},
        {"filters cut where they say", filters_cut_where_they_say},
        {"top-k comes before top-p", top_k_comes_before_top_p},
        {"the temperature comes last", temperature_comes_last},
        {"frequencies are those of softmax", frequencies_are_softmax},
        {"logits and candidates agree", logits_and_candidates_agree},
        {"logits are wanted past the candidates", logits_are_wanted_past_the_candidates},
        {"bad values are refused by name", bad_values_are_refused_by_name},
        CU_TEST_INFO_NULL,
    };
    return check_run("sampler", tests);
}
