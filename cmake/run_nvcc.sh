#!/bin/sh
# run_nvcc.sh LOG COMMAND...: runs nvcc; what the assembler reports goes into LOG, and to the reader if it fails.
log=$1
shift
if "$@" >"$log" 2>&1; then exit 0; fi
status=$?
cat "$log" >&2
rm -f "$log"
exit $status
