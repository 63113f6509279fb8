# Run after a unit test was linked: writes FILE, which tells ctest of every suite in PROGRAM as one test PREFIX.<suite>.
# A process for each case would take longer to start than most cases take to run.
execute_process(COMMAND ${PROGRAM} --gtest_list_tests OUTPUT_VARIABLE listed COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "(^|\n)[A-Za-z0-9_/]+\\." suites "${listed}")
if(NOT suites)
  message(FATAL_ERROR "${PROGRAM} has no tests")
endif()
set(text "")
foreach(suite ${suites})
  string(REGEX REPLACE "[\n.]" "" suite "${suite}")
  string(APPEND text "add_test([=[${PREFIX}.${suite}]=] \"${PROGRAM}\" \"--gtest_filter=${suite}.*\")\n"
    "set_tests_properties([=[${PREFIX}.${suite}]=] PROPERTIES TIMEOUT 600)\n")
endforeach()
file(WRITE ${FILE} "${text}")
