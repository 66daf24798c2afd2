#!/usr/bin/env bash
# Installs into a scratch folder; runs the installed program; builds the examples with the CMake package and runs them.
set -euo pipefail
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cmake --install "$PENSTOCK_BUILD" --prefix "$scratch/usr" >"$scratch/log" || { cat "$scratch/log"; exit 1; }
expected=$(cd "$scratch" && "$scratch/usr/bin/penstock" generate --temperature 0 -n 20 --json -p "Once upon a time" |
  python3 -c 'import json, sys; print(json.load(sys.stdin)["text"])')
[ -n "$expected" ]
cmake -S "$PENSTOCK_SOURCE/examples" -B "$scratch/build" -G Ninja -DCMAKE_PREFIX_PATH="$scratch/usr" \
  -DCMAKE_BUILD_TYPE=Release >"$scratch/log" 2>&1 && cmake --build "$scratch/build" >>"$scratch/log" 2>&1 ||
  { cat "$scratch/log"; exit 1; }
model=$scratch/usr/share/penstock/models/penstock-stories-15m-q8_0.gguf
check() {  # NAME EXPECTED GOT
  echo "$1: $3"
  [ "$2" = "$3" ] || { echo "expected: $2"; exit 1; }
}
check complete "$(printf '%s\n%s' "$expected" "$expected")" \
  "$("$scratch/build/complete" "$model" "Once upon a time" "Once upon a time")"
streamed=$("$scratch/build/stream" "$model" "Once upon a time" 60)
check "end of the stream" "[abort]" "${streamed##*$'\n'}"
check stream "${expected:0:50}" "${streamed:0:50}"
answer=$("$scratch/build/chat" "$model" "Tell me of a dog.")
check chat "$answer" "$("$scratch/build/chat" "$model" "Tell me of a dog.")"
[[ $answer == *"tokens, "* ]]
counts=$("$scratch/build/engine" "$model")
check engine "$(printf '10 tokens, length\n11 tokens, length\n12 tokens, length\n33 tokens')" "${counts% in *}"
