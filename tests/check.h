/* What every CUnit program of the suite shares: registering tests from a table, skipping, and finding fixtures. */
#pragma once

#include <CUnit/Basic.h>
#include <CUnit/CUnit.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHECK_SKIPPED = 77 };

/* Runs a NULL-terminated table of tests and returns the exit status: 0 when all passed. */
static inline int check_run(const char *suite, const CU_TestInfo *tests) {
    if (CU_initialize_registry() != CUE_SUCCESS) return 2;
    CU_SuiteInfo suites[] = {{suite, NULL, NULL, NULL, NULL, (CU_TestInfo *)tests}, CU_SUITE_INFO_NULL};
    if (CU_register_suites(suites) != CUE_SUCCESS) return 2;
    CU_basic_set_mode(CU_BRM_VERBOSE);
    CU_basic_run_tests();
    unsigned failed = CU_get_number_of_failures() + CU_get_number_of_suites_failed();
    CU_cleanup_registry();
    return failed ? 1 : 0;
}

/* DIR/name from the environment variable `var` into buf; false when the variable is not set. */
static inline int check_path(char *buf, size_t size, const char *var, const char *name) {
    const char *dir = getenv(var);
    if (!dir || !*dir) return 0;
    return snprintf(buf, size, "%s/%s", dir, name) < (int)size;
}
