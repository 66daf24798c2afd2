#!/usr/bin/env bash
# Installs the components into scratch folders; runs the installed program; builds the examples with the CMake package and runs
# them.
set -euo pipefail
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
install() {  # COMPONENT PREFIX
  cmake --install "$PENSTOCK_BUILD" --component "$1" --prefix "$scratch/$2" >"$scratch/log" || { cat "$scratch/log"; exit 1; }
}
install program usr
mib=$(du -sm "$scratch/usr" | cut -f1)
echo "program and built-in model: $mib MiB"
[ "$mib" -le 66 ]
if readelf -S "$scratch/usr/bin/penstock" | grep debug_info; then exit 1; fi
install debug usr
address=$(nm "$PENSTOCK_BUILD/penstock.debug" | awk '$3 == "main" { print $1 }')
[[ $(addr2line -e "$scratch/usr/bin/penstock" "$address") == *cli/main.cc:* ]]
install library library
expected=$(cd "$scratch" && "$scratch/usr/bin/penstock" generate --temperature 0 -n 20 --json -p "Once upon a time" |
  python3 -c 'import json, sys; print(json.load(sys.stdin)["text"])')
[ -n "$expected" ]
cmake -S "$PENSTOCK_SOURCE/examples" -B "$scratch/build" -G Ninja -DCMAKE_PREFIX_PATH="$scratch/library" \
  -DCMAKE_BUILD_TYPE=Release >"$scratch/log" 2>&1 && cmake --build "$scratch/build" >>"$scratch/log" 2>&1 ||
  { cat "$scratch/log"; exit 1; }
if ldd "$scratch/build/complete" | grep -E 'prometheus|boost|curl'; then exit 1; fi
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
python3 "$PENSTOCK_SOURCE/tests/e2e/script_model.py" "$scratch/script" >"$scratch/log"
guide=$(cd "$scratch" && "$scratch/build/guide" "$model" "$scratch/script")
check "tools" "$(printf 'get_weather {"city":"Paris"}\nIt is sunny in Paris.')" "$(tail -2 <<<"$guide")"
[[ $guide == "top_p: expected a number in [0, 1], got 2"* && $guide == *"need not be computed again"* ]]
