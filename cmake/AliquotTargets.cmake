# aliquot_common_headers(<target> <library|test>)
#   What nearly every source includes is parsed once for all libraries, and once for all unit tests. Sources still include
#   what they use. Unit tests are not optimised: that would take half as long again as compiling them.
set(common_headers
  <algorithm> <functional> <map> <memory> <optional> <string> <unordered_map> <vector>
  <fmt/format.h> <tl/expected.hpp>)
set(test_headers <gmock/gmock.h> <gtest/gtest.h> <rapidcheck/gtest.h>)
function(aliquot_common_headers target kind)
  target_precompile_headers(${target} REUSE_FROM aliquot_${kind}_headers)
  if(kind STREQUAL test)
    target_compile_options(${target} PRIVATE -O0)
  endif()
endfunction()

file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/headers.cpp CONTENT "int main() {}\n")
add_library(aliquot_library_headers STATIC EXCLUDE_FROM_ALL ${PROJECT_BINARY_DIR}/headers.cpp)
target_link_libraries(aliquot_library_headers PRIVATE aliquot_options fmt::fmt tl::expected)
target_precompile_headers(aliquot_library_headers PRIVATE ${common_headers})
if(BUILD_TESTING AND ALIQUOT_UNIT_TESTS)
  # An executable as they are: libraries are compiled otherwise.
  add_executable(aliquot_test_headers EXCLUDE_FROM_ALL ${PROJECT_BINARY_DIR}/headers.cpp)
  target_link_libraries(aliquot_test_headers PRIVATE
    aliquot_options fmt::fmt tl::expected GTest::gmock rapidcheck)
  set_target_properties(aliquot_test_headers PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
  target_compile_options(aliquot_test_headers PRIVATE -O0)
  target_precompile_headers(aliquot_test_headers PRIVATE ${common_headers} ${test_headers})
  # What the commands' tests do not need: those begin before it is built.
  add_custom_target(unit_tests)
endif()

# aliquot_suites(<name>): the suites of the unit test <name>_test as tests <name>.<suite>.
function(aliquot_suites name)
  set(suites ${CMAKE_CURRENT_BINARY_DIR}/${name}_test.cmake)
  if(NOT EXISTS ${suites})
    file(WRITE ${suites} "")  # ctest wants it before it is built
  endif()
  add_custom_command(TARGET ${name}_test POST_BUILD BYPRODUCTS ${suites}
    COMMAND ${CMAKE_COMMAND} -D PROGRAM=$<TARGET_FILE:${name}_test> -D PREFIX=${name} -D FILE=${suites}
      -P ${PROJECT_SOURCE_DIR}/cmake/AliquotSuites.cmake)
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${suites})
endfunction()

# aliquot_library(<folder> [SOURCES …] [DEPENDS …] [TESTS_ELSEWHERE …])
#   The static library aliquot_<folder> from SOURCES (none: a header-only folder), linked to DEPENDS.
#   Every *_test.cpp beside the code goes into one executable <folder>_test, suite by suite in ctest; those below the
#   sub-folders TESTS_ELSEWHERE do not.
function(aliquot_library folder)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;DEPENDS;TESTS_ELSEWHERE")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "aliquot_library(${folder}): what is '${arg_UNPARSED_ARGUMENTS}'?")
  endif()

  set(library aliquot_${folder})
  if(arg_SOURCES)
    add_library(${library} STATIC ${arg_SOURCES})
    target_link_libraries(${library} PUBLIC aliquot_options ${arg_DEPENDS})
    aliquot_common_headers(${library} library)
  else()
    add_library(${library} INTERFACE)
    target_link_libraries(${library} INTERFACE aliquot_options ${arg_DEPENDS})
  endif()

  file(GLOB_RECURSE tests CONFIGURE_DEPENDS *_test.cpp)
  foreach(elsewhere ${arg_TESTS_ELSEWHERE})
    list(FILTER tests EXCLUDE REGEX "^${CMAKE_CURRENT_SOURCE_DIR}/${elsewhere}/")
  endforeach()
  if(BUILD_TESTING AND ALIQUOT_UNIT_TESTS AND tests)
    add_executable(${folder}_test EXCLUDE_FROM_ALL ${tests})
    add_dependencies(unit_tests ${folder}_test)
    target_link_libraries(${folder}_test PRIVATE
      ${library} GTest::gmock GTest::gtest_main rapidcheck Threads::Threads)
    aliquot_common_headers(${folder}_test test)
    aliquot_suites(${folder})
  endif()
endfunction()

# aliquot_fuzzer(<name> SOURCE <file> [DEPENDS …])
#   In the fuzz preset: the libFuzzer executable fuzz_<name>, and a short run of it in ctest, which starts
#   from the files in <source dir>/corpus/<name>/ where there are any. Elsewhere: nothing.
set(ALIQUOT_FUZZ_SECONDS 3 CACHE STRING "seconds each fuzzer runs in ctest")
function(aliquot_fuzzer name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "SOURCE" "DEPENDS")
  if(NOT arg_SOURCE OR arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "aliquot_fuzzer(${name}): use aliquot_fuzzer(name SOURCE file [DEPENDS …])")
  endif()
  if(NOT ALIQUOT_FUZZ)
    return()
  endif()

  add_executable(fuzz_${name} ${arg_SOURCE})
  target_link_libraries(fuzz_${name} PRIVATE aliquot_options ${arg_DEPENDS})
  target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
  add_dependencies(fuzzers fuzz_${name})

  # What the fuzzer finds stays in the build tree; the seeds in the source tree are only read.
  set(found ${CMAKE_CURRENT_BINARY_DIR}/found/${name})
  file(MAKE_DIRECTORY ${found})
  set(seeds ${CMAKE_CURRENT_SOURCE_DIR}/corpus/${name})
  if(NOT EXISTS ${seeds})
    set(seeds "")
  endif()
  add_test(NAME fuzz.${name}
    COMMAND fuzz_${name} -max_total_time=${ALIQUOT_FUZZ_SECONDS} -timeout=5 -max_len=512
      -verbosity=0 -print_final_stats=1 -artifact_prefix=${found}/ ${found} ${seeds})
  math(EXPR limit "${ALIQUOT_FUZZ_SECONDS} + 60")
  set_tests_properties(fuzz.${name} PROPERTIES TIMEOUT ${limit})
endfunction()

if(ALIQUOT_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "ALIQUOT_FUZZ needs clang: use 'cmake --preset fuzz'")
  endif()
  target_compile_options(aliquot_options INTERFACE -fsanitize=fuzzer-no-link)
  add_custom_target(fuzzers)
endif()
