#!/usr/bin/env bash
# penstock render: the rendering and nothing else, or the reason on stderr and an exit code.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
printf '%s' '{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }}{% endfor %}{{ strftime_now("%d %B %Y %A %j") }}' > "$dir/t.jinja"
printf '%s' '{% if not messages %}{{ raise_exception("no messages") }}{% endif %}' > "$dir/refuse.jinja"
printf '%s' '{"bos_token": "<s>", "messages": [{"role": "user", "content": "Zürich 👋\n"}]}' > "$dir/c.json"
printf '%s' '{"messages": []}' > "$dir/empty.json"

"$PENSTOCK" render --template "$dir/t.jinja" --context "$dir/c.json" --now 2026-01-02T03:04:05 > "$dir/out" 2> "$dir/err"
printf '<s>[user] Zürich 👋\n02 January 2026 Friday 002' | cmp - "$dir/out"
[ ! -s "$dir/err" ]

refused() {  # expected exit code, expected words, arguments…
  local code=0 want=$1 words=$2
  shift 2
  "$PENSTOCK" render "$@" > "$dir/out" 2> "$dir/err" || code=$?
  [ "$code" = "$want" ] || { echo "exit code $code, expected $want: $*"; cat "$dir/err"; exit 1; }
  grep -qF -- "$words" "$dir/err" || { echo "expected '$words' on stderr, got:"; cat "$dir/err"; exit 1; }
  [ ! -s "$dir/out" ] || { echo "something was printed"; exit 1; }
}
refused 2 "line 1: no messages" --template "$dir/refuse.jinja" --context "$dir/empty.json"
refused 2 "--now: expected a time" --template "$dir/t.jinja" --context "$dir/c.json" --now yesterday
refused 2 "there is no day" --template "$dir/t.jinja" --context "$dir/c.json" --now 2026-02-30T00:00:00
refused 2 "expected a JSON object" --template "$dir/t.jinja" --context "$dir/t.jinja"
refused 3 "nowhere" --template "$dir/nowhere" --context "$dir/c.json"
echo "render: ok"
