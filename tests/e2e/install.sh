#!/usr/bin/env bash
# Installs into a scratch folder; runs the installed program; builds and runs a consumer of the CMake package.
set -euo pipefail
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cmake --install "$PENSTOCK_BUILD" --prefix "$scratch/usr" >"$scratch/log" || { cat "$scratch/log"; exit 1; }
expected=$(cd "$scratch" && "$scratch/usr/bin/penstock" generate --temperature 0 -n 20 --json -p "Once upon a time" |
  python3 -c 'import json, sys; print(json.load(sys.stdin)["text"])')
[ -n "$expected" ]
cmake -S "$PENSTOCK_SOURCE/tests/e2e/consumer" -B "$scratch/build" -G Ninja -DCMAKE_PREFIX_PATH="$scratch/usr" \
  -DCMAKE_BUILD_TYPE=Release >"$scratch/log" 2>&1 && cmake --build "$scratch/build" >>"$scratch/log" 2>&1 ||
  { cat "$scratch/log"; exit 1; }
got=$("$scratch/build/consumer" "$scratch"/usr/share/penstock/models/penstock-stories-15m-q8_0.gguf)
echo "consumer: $got"
[ "$got" = "$expected" ]
