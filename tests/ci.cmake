# What scripts/test --ci adds (SHEAF_CI): each stage a test with the label "ci". Those that use all cores run alone.
set(ci_scripts ${PROJECT_SOURCE_DIR}/scripts)
function(sheaf_add_stage name seconds)
    add_test(NAME ci.${name} COMMAND ${ARGN} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    set_tests_properties(ci.${name} PROPERTIES LABELS ci TIMEOUT ${seconds} RUN_SERIAL ON)
endfunction()

sheaf_add_stage(format 120 ${ci_scripts}/format --check)
sheaf_add_stage(werror 1200 bash -c "cmake --preset werror && cmake --build --preset werror")
sheaf_add_stage(tidy 1800 ${ci_scripts}/tidy)
sheaf_add_stage(asan 2700 bash -c "cmake --preset asan && cmake --build --preset asan && \
    ctest --test-dir build/asan -LE 'slow|long' -j $(nproc) --output-on-failure")

file(GLOB fuzzers CONFIGURE_DEPENDS fuzz/fuzz_*.c)
if(fuzzers)
    sheaf_add_stage(fuzz-build 600 bash -c "cmake --preset fuzz && cmake --build --preset fuzz --target fuzzers")
    set_tests_properties(ci.fuzz-build PROPERTIES FIXTURES_SETUP fuzzers)
endif()
foreach(source ${fuzzers})
    get_filename_component(name ${source} NAME_WE)
    string(REPLACE fuzz_ "" name ${name})
    sheaf_add_stage(fuzz.${name} 300 ${ci_scripts}/fuzz ${name} 60)
    set_tests_properties(ci.fuzz.${name} PROPERTIES RUN_SERIAL OFF FIXTURES_REQUIRED fuzzers)
endforeach()
