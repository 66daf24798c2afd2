# Tests of a GoogleTest binary for CTest, read when CTest starts. Those that differ only in their parameter are one test of CTest, in
# one process: to start thousands of processes took longer than what most of them tested. Takes BINARY, LABEL and LISTED, the
# file to write.
execute_process(COMMAND "${BINARY}" --gtest_list_tests OUTPUT_VARIABLE listing RESULT_VARIABLE failed)
if(failed)
  message(FATAL_ERROR "${BINARY} --gtest_list_tests: ${failed}")
endif()
string(REGEX REPLACE " *# [^\n]*" "" listing "${listing}")  # the parameters' values
string(REPLACE "\n" ";" lines "${listing}")
set(calls)
set(suite)
foreach(line IN LISTS lines)
  if(line MATCHES "^[^ ]+\\.$")
    set(suite "${line}")
  elseif(NOT "${suite}${line}" MATCHES "DISABLED_" AND line MATCHES "^  ([^/]+)(/?)")
    set(name "${suite}${CMAKE_MATCH_1}")
    set(filter "${name}")
    if(CMAKE_MATCH_2)
      set(filter "${name}/*")
    endif()
    if(NOT DEFINED "added_${name}")
      set("added_${name}" TRUE)
      string(APPEND calls "add_test([=[${name}]=] [=[${BINARY}]=] [=[--gtest_filter=${filter}]=])\n"
        "set_tests_properties([=[${name}]=] PROPERTIES LABELS ${LABEL} TIMEOUT 600 "
        # Skipped is what skipped all of its cases.
        "SKIP_REGULAR_EXPRESSION [=[PASSED  . 0 tests\\.\n(\\[  SKIPPED [^\n]*\n)+\n*$]=])\n")
    endif()
  endif()
endforeach()
file(WRITE "${LISTED}" "${calls}")
