#!/bin/sh
# run_nvcc.sh LOG COMMAND...: runs nvcc; what the assembler reports goes into LOG, and to the reader if it fails.
log=$1
shift
"$@" >"$log" 2>&1 && exit 0
status=$?
cat "$log" >&2
rm -f "$log"
exit $status
