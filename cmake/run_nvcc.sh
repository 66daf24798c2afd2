#!/bin/bash
# run_nvcc.sh LOG COMMAND...: runs nvcc; what the assembler reports goes into LOG, with the CPU time that it took, and to the reader if it
# fails.
log=$1
shift
TIMEFORMAT='%U %S'
if taken=$( { time "$@" >"$log" 2>&1; } 2>&1 ); then
  echo "$taken" | awk '{ printf "nvcc took %.1f s of CPU\n", $1 + $2 }' >>"$log"
  exit 0
fi
cat "$log" >&2
rm -f "$log"
exit 1
