#!/usr/bin/env bash
# Fails if an object compiled with wide instructions defines a weak or unique symbol: the linker may pick that copy for
# the whole program, which then dies on a machine without those instructions.
# Usage: check_kernel_symbols.sh BUILD_DIR
set -euo pipefail
build=${1:?usage: $0 BUILD_DIR}
objects=$(find "$build" -path '*penstock_kernels.dir/kernels/*/*.o' ! -path '*/scalar/*' ! -path '*/pack/*')
[ -n "$objects" ] || { echo "no kernel objects under $build" >&2; exit 2; }
status=0
for object in $objects; do
  # V, W (defined weak object, function) and u (unique); v and w are mere references.
  if found=$(nm --defined-only -C "$object" | grep -E '^[0-9a-f]+ [VWu] '); then
    printf '%s defines weak symbols:\n%s\n' "$object" "$found" >&2
    status=1
  fi
done
exit $status
