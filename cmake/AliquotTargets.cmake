# What nearly every source includes, parsed once per target: half of the build's time otherwise. Sources
# still include what they use; a target of a few files is left as it is.
set(ALIQUOT_COMMON_HEADERS
  <algorithm> <functional> <map> <memory> <optional> <string> <unordered_map> <vector>
  <fmt/format.h> <tl/expected.hpp>)
function(aliquot_precompile target)
  get_target_property(sources ${target} SOURCES)
  list(LENGTH sources count)
  if(count GREATER 3)
    target_precompile_headers(${target} PRIVATE ${ARGN})
  endif()
endfunction()

# aliquot_library(<folder> [SOURCES …] [DEPENDS …])
#   The static library aliquot_<folder> from SOURCES (none: a header-only folder), linked to DEPENDS.
#   Every *_test.cpp beside the code goes into one executable <folder>_test, case by case in ctest.
function(aliquot_library folder)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;DEPENDS")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "aliquot_library(${folder}): what is '${arg_UNPARSED_ARGUMENTS}'?")
  endif()

  set(library aliquot_${folder})
  if(arg_SOURCES)
    add_library(${library} STATIC ${arg_SOURCES})
    target_link_libraries(${library} PUBLIC aliquot_options ${arg_DEPENDS})
    aliquot_precompile(${library} ${ALIQUOT_COMMON_HEADERS})
  else()
    add_library(${library} INTERFACE)
    target_link_libraries(${library} INTERFACE aliquot_options ${arg_DEPENDS})
  endif()

  file(GLOB_RECURSE tests CONFIGURE_DEPENDS *_test.cpp)
  if(BUILD_TESTING AND ALIQUOT_UNIT_TESTS AND tests)
    add_executable(${folder}_test ${tests})
    target_link_libraries(${folder}_test PRIVATE
      ${library} GTest::gmock GTest::gtest_main rapidcheck Threads::Threads)
    aliquot_precompile(${folder}_test
      ${ALIQUOT_COMMON_HEADERS} <gmock/gmock.h> <gtest/gtest.h> <rapidcheck/gtest.h>)
    gtest_discover_tests(${folder}_test
      TEST_PREFIX "${folder}." DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 300)
  endif()
endfunction()

# aliquot_fuzzer(<name> SOURCE <file> [DEPENDS …])
#   In the fuzz preset: the libFuzzer executable fuzz_<name>, and a short run of it in ctest, which starts
#   from the files in <source dir>/corpus/<name>/ where there are any. Elsewhere: nothing.
set(ALIQUOT_FUZZ_SECONDS 5 CACHE STRING "seconds each fuzzer runs in ctest")
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
