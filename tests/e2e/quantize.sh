#!/usr/bin/env bash
# penstock quantize, imatrix and eval-quant as a user runs them, on the models of the source tree.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
model=$PENSTOCK_SOURCE/models/penstock-stories-1m-q8_0.gguf
text=$PENSTOCK_SOURCE/tests/golden/heldout_tinystories.txt

"$PENSTOCK" quantize "$model" "$dir/q4.gguf" --type q4_0 > "$dir/out"
grep -q 'q4.gguf' "$dir/out"
"$PENSTOCK" quantize "$model" "$dir/f16" --type f16
"$PENSTOCK" quantize "$dir/f16" "$dir/back.gguf" --type q8_0
# Text to ids and greedy text do not change on the way through a directory.
"$PENSTOCK" tokenize -m "$model" -f "$text" > "$dir/ids"
"$PENSTOCK" tokenize -m "$dir/f16" -f "$text" | cmp - "$dir/ids"
"$PENSTOCK" tokenize -m "$dir/back.gguf" -f "$text" | cmp - "$dir/ids"
"$PENSTOCK" generate -m "$model" -p "Once upon a time" -n 20 --temp 0 -q > "$dir/want"
"$PENSTOCK" generate -m "$dir/back.gguf" -p "Once upon a time" -n 20 --temp 0 -q | cmp - "$dir/want"
# At load: the same text as the file of that type.
"$PENSTOCK" quantize "$dir/f16" "$dir/int8" --type int8
"$PENSTOCK" generate -m "$dir/int8" -p "Once upon a time" -n 20 --temp 0 -q > "$dir/want8"
"$PENSTOCK" generate -m "$dir/f16" --quantize int8 -p "Once upon a time" -n 20 --temp 0 -q | cmp - "$dir/want8"

"$PENSTOCK" imatrix "$model" "$dir/i.gguf" --calibration "$text" --calibration-samples 8
"$PENSTOCK" quantize "$model" "$dir/q4i.gguf" --type q4_0 --imatrix "$dir/i.gguf"
"$PENSTOCK" quantize "$dir/f16" "$dir/gptq" --type int4 -g 32 --method gptq --calibration "$text" --calibration-samples 8
"$PENSTOCK" eval-quant "$model" "$dir/q4.gguf" "$dir/q4i.gguf" "$dir/gptq" -f "$text" --max-windows 4 --no-speed --json \
  --plot "$dir/p.svg" > "$dir/report"
python3 - "$dir/report" "$dir/p.svg" <<'P'
import json, sys, xml.dom.minidom
report = json.load(open(sys.argv[1]))
assert [v["name"] for v in report["variants"]] == ["q4.gguf", "q4i.gguf", "gptq"], report
for variant in report["variants"]:
    assert 0 < variant["kl"] < 0.5 and 0.5 < variant["top1"] < 1, variant
    assert len(variant["worst_layers"]) == 3 and variant["worst_layers"][0]["relative_error"] > 0, variant
assert report["variants"][0]["bytes"] < report["original"]["bytes"]
assert xml.dom.minidom.parse(sys.argv[2]).getElementsByTagName("circle").length == 4
P

refused() {  # expected exit code, expected words, arguments…
  local code=0 want=$1 words=$2
  shift 2
  "$PENSTOCK" "$@" > "$dir/out" 2> "$dir/err" || code=$?
  [ "$code" = "$want" ] || { echo "exit code $code, expected $want: $*"; cat "$dir/err"; exit 1; }
  grep -qF -- "$words" "$dir/err" || { echo "expected '$words' on stderr, got:"; cat "$dir/err"; exit 1; }
}
refused 2 "--force" quantize "$model" "$dir/q4.gguf" --type q4_0
refused 2 "the output is the input" quantize "$dir/q4.gguf" "$dir/q4.gguf" --type q4_0 --force
refused 2 "the output is the input" imatrix "$dir/q4.gguf" "$dir/q4.gguf" --calibration "$text" --force
refused 2 "--force" imatrix "$model" "$dir/q4.gguf" --calibration "$text"
# What is read is never written over, nor what is no earlier output: shards, the imatrix, the text, folders around the input.
mkdir -p "$dir/around" "$dir/notes" "$dir/other.gguf.parts"
cp -r "$dir/f16" "$dir/around/in"
cp -r "$dir/f16" "$dir/with_folders"
mkdir "$dir/with_folders/.git"
for notes in notes/thesis.txt thesis.gguf other.gguf.parts/thesis.txt; do cp "$text" "$dir/$notes"; done
refused 2 "is in the output" quantize "$dir/around/in" "$dir/around" --type int4 --force
refused 2 "with a config.json" quantize "$model" "$dir/notes" --type int4 --force
mkdir "$dir/without_weights"
cp "$dir/f16/config.json" "$text" "$dir/without_weights"
refused 2 "model.safetensors" quantize "$model" "$dir/without_weights" --type int4 --force
cmp "$text" "$dir/without_weights/$(basename "$text")"
# An input that is a symbolic link in the output, and inputs where the output is made: OUT.partial, in OUT.parts.
cp -r "$dir/f16" "$dir/with_link"
ln -s "$dir/i.gguf" "$dir/with_link/i.gguf"
refused 2 "is in the output" quantize "$model" "$dir/with_link" --type int8 --imatrix "$dir/with_link/i.gguf" --force
test -L "$dir/with_link/i.gguf"
cp "$model" "$dir/near.gguf.partial"
refused 2 "near.gguf.partial: the output is the input" quantize "$dir/near.gguf.partial" "$dir/near.gguf" --type q4_0
cmp "$model" "$dir/near.gguf.partial"
mkdir "$dir/far.gguf.parts"
cp "$model" "$dir/far.gguf.parts/part-00000"
printf 'method 0' > "$dir/far.gguf.parts/job.txt"
refused 2 "is in the output" quantize "$dir/far.gguf.parts/part-00000" "$dir/far.gguf" --type q4_0
cmp "$model" "$dir/far.gguf.parts/part-00000"
# Another program's job.txt, and another program's file beside ours; pieces of another job alone make room.
mkdir "$dir/job.gguf.parts"
printf 'my jobs\n' > "$dir/job.gguf.parts/job.txt"
refused 2 "another job.txt" quantize "$model" "$dir/job.gguf" --type q4_0
grep -q 'my jobs' "$dir/job.gguf.parts/job.txt"
printf 'method 0' > "$dir/job.gguf.parts/job.txt"
mkdir "$dir/job.gguf.parts/mine"
refused 2 "got mine" quantize "$model" "$dir/job.gguf" --type q4_0
rmdir "$dir/job.gguf.parts/mine"
cp "$text" "$dir/job.gguf.parts/part-1.txt"
refused 2 "got part-1.txt" quantize "$model" "$dir/job.gguf" --type q4_0
cmp "$text" "$dir/job.gguf.parts/part-1.txt"
mv "$dir/job.gguf.parts/part-1.txt" "$dir/job.gguf.parts/part-00001"
"$PENSTOCK" quantize "$model" "$dir/job.gguf" --type q4_0 > "$dir/out"
cmp "$dir/job.gguf" "$dir/q4.gguf"
[ ! -e "$dir/job.gguf.parts" ]
refused 2 "it has .git" quantize "$model" "$dir/with_folders" --type int4 --force
refused 2 "the output is the input" quantize "$dir/around/in" "$dir/around/in/model.safetensors" --type int4 --force
refused 2 "expected a directory" quantize "$dir/around/in" "$dir/around/in/config.json" --type int4 --force
refused 2 "the output is the input" quantize "$model" "$dir/i.gguf" --type q4_0 --imatrix "$dir/i.gguf" --force
refused 2 "expected a GGUF file" quantize "$model" "$dir/thesis.gguf" --type q4_0 --force
mkfifo "$dir/fifo.gguf"
refused 2 "expected a GGUF file" imatrix "$model" "$dir/fifo.gguf" --calibration "$text" --force
refused 2 "expected a GGUF file" bench --shape tiny --write-gguf "$dir/fifo.gguf"
refused 2 "expected a GGUF file" quantize "$model" "$dir/fifo.gguf" --type q4_0 --force
refused 2 "expected a directory" quantize "$model" /dev/null --type int4 --force
test -p "$dir/fifo.gguf" && test -c /dev/null
refused 2 "pieces of an output" quantize "$model" "$dir/other.gguf" --type q4_0
refused 2 "the output is the input" imatrix "$model" "$dir/thesis.gguf" --calibration "$dir/thesis.gguf" --force
refused 2 "the output is the input" imatrix "$dir/around/in" "$dir/around/in/model.safetensors" --calibration "$text" --force
refused 2 "expected a GGUF file" bench --shape tiny --write-gguf "$dir/notes/thesis.txt"
refused 2 "--write-gguf wrote" bench --shape tiny --write-gguf "$dir/i.gguf"
cp "$dir/q4.gguf" "$dir/shape.gguf"
refused 2 "--write-gguf wrote" bench --shape tiny --write-gguf "$dir/shape.gguf"
cmp "$dir/q4.gguf" "$dir/shape.gguf"
: > "$dir/shape.gguf"
for _ in 1 2; do "$PENSTOCK" bench --shape tiny --write-gguf "$dir/shape.gguf"; done
# A place for a plot is looked at before anything is read: that there is no such model, or text, comes later.
printf '<?xml version="1.0"?>\n<notes/>\n' > "$dir/notes.xml"
cp "$dir/notes.xml" "$dir/notes.before"
for place in thesis.gguf notes.xml; do
  refused 2 "expected a plot" eval-quant "$model" "$dir/q4.gguf" -f "$dir/nowhere" --plot "$dir/$place"
  refused 2 "expected a plot" bench -m "$dir/nowhere" --ladder --svg "$dir/$place"
  refused 2 "expected a plot" bench -m "$dir/nowhere" --serve-svg "$dir/$place"
done
cmp "$dir/notes.xml" "$dir/notes.before"
"$PENSTOCK" eval-quant "$model" "$dir/q4.gguf" -f "$text" --max-windows 1 --no-speed --plot "$dir/p.svg" > "$dir/out"
# What was measured is printed also when the plot cannot be written.
refused 1 "cannot be written" eval-quant "$model" "$dir/q4.gguf" -f "$text" --max-windows 1 --no-speed --plot "$dir/absent/p.svg"
grep -q 'q4.gguf' "$dir/out"
refused 1 "cannot be written" bench --shape tiny --ladder --ladder-tokens 2 -r 1 --svg "$dir/absent/p.svg"
grep -q 'speculation' "$dir/out"
refused 2 "expected a route's score" route train -d "$dir/nowhere" -m "$dir/nowhere" -o "$dir/thesis.gguf"
for notes in notes/thesis.txt thesis.gguf other.gguf.parts/thesis.txt; do cmp "$text" "$dir/$notes"; done
diff -r "$dir/f16" "$dir/around/in"
test -d "$dir/with_folders/.git"
"$PENSTOCK" quantize "$model" "$dir/q4.gguf" --type q4_0 --force > "$dir/out"
"$PENSTOCK" quantize "$model" "$dir/int8" --type int8 --force > "$dir/out"
# A slash at the end of the name changes nothing: the parts lie beside the output.
for slash in / /. //; do "$PENSTOCK" quantize "$model" "$dir/int8$slash" --type int8 --force > "$dir/out"; done
"$PENSTOCK" quantize "$model" "$dir/new_int8/" --type int8 > "$dir/out"
diff -r "$dir/int8" "$dir/new_int8"
(cd "$dir/new_int8" && "$PENSTOCK" quantize "$model" . --type int8 --force > "$dir/out")
diff -r "$dir/int8" "$dir/new_int8"
[ -z "$(find "$dir" -name '*int8*.parts' -o -path '*int8*/*.parts')" ]
refused 2 "q4_k_m" quantize "$model" "$dir/x.gguf" --type int4
refused 2 "calibration" quantize "$model" "$dir/x" --type int4 --method awq
refused 3 "nowhere" quantize "$dir/nowhere" "$dir/x.gguf" --type q4_0
printf '{"text": 3}\n' > "$dir/bad.jsonl"
refused 4 "line 1" quantize "$model" "$dir/x" --type int4 -g 32 --method awq --calibration "$dir/bad.jsonl"
# A file that may not grow is one error, leaves no output, and the same command goes on with the parts it has: too
# little for the first part, then enough for every part and not for the whole.
for kib in 64 400; do
  (
    ulimit -f "$kib"
    refused 5 "File too large" quantize "$model" "$dir/full.gguf" --type q4_0
  )
  [ ! -e "$dir/full.gguf" ] && [ ! -e "$dir/full.gguf.partial" ]
done
[ -e "$dir/full.gguf.parts/part-00000" ]
# What has come to the output's place during the work stays: it is looked at again at the end.
"$PENSTOCK" quantize "$dir/f16" "$dir/late" --type int4 -g 32 --method gptq --calibration "$text" --force 2> "$dir/err" &
late=$!
while kill -0 "$late" && [ ! -e "$dir/late.parts/stream-0" ]; do sleep 0.01; done
kill -STOP "$late"
mkdir "$dir/late"
cp "$text" "$dir/late/notes.txt"
kill -CONT "$late"
code=0
wait "$late" || code=$?
[ "$code" = 2 ] && grep -q "with a config.json" "$dir/err"
cmp "$text" "$dir/late/notes.txt"
# Parts of weights or of an importance matrix that have changed are made again; parts that are whole are not.
cp "$dir/i.gguf" "$dir/changing.gguf"
cp -r "$dir/f16" "$dir/changing"
again() {  # file that changes, or "", number of parts that are kept: "" is all but the last
  (
    ulimit -f 400
    refused 5 "File too large" quantize "$dir/changing" "$dir/again.gguf" --type q4_0 --imatrix "$dir/changing.gguf"
  )
  [ -z "$1" ] || touch -d "$3" "$1"
  "$PENSTOCK" quantize "$dir/changing" "$dir/again.gguf" --type q4_0 --imatrix "$dir/changing.gguf" --json > "$dir/out"
  python3 -c 'import json, sys; r = json.load(open(sys.argv[1])); assert r["resumed"] == int(sys.argv[2] or r["parts"] - 1), r' \
    "$dir/out" "$2"
  rm "$dir/again.gguf"
}
again "" ""
again "$dir/changing.gguf" 0 "2001-02-03"
again "$dir/changing/model.safetensors" 0 "2001-02-03"
# A link that somebody put there is not followed.
ln -s /dev/full "$dir/full.gguf.partial"
refused 1 "got a symbolic link" quantize "$model" "$dir/full.gguf" --type q4_0
[ ! -e "$dir/full.gguf" ] && rm "$dir/full.gguf.partial"
"$PENSTOCK" quantize "$model" "$dir/full.gguf" --type q4_0 --json > "$dir/out"
python3 -c 'import json, sys; r = json.load(open(sys.argv[1])); assert r["resumed"] == r["parts"] - 1 > 0, r' "$dir/out"
cmp "$dir/full.gguf" "$dir/q4.gguf"
[ ! -e "$dir/full.gguf.parts" ]
echo "quantize: ok"
