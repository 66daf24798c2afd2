#!/usr/bin/env bash
# Runs the training recipe for a few steps. Needs a Python with training/requirements.txt: PENSTOCK_TRAINING_PYTHON or python3.
set -euo pipefail
source_dir=${PENSTOCK_SOURCE:-$(cd "$(dirname "$0")/../.." && pwd)}
python=${PENSTOCK_TRAINING_PYTHON:-python3}
if ! "$python" -c 'import torch, sentencepiece, gguf, transformers' 2>/dev/null; then
  echo "SKIPPED: $python lacks torch, sentencepiece, gguf or transformers (training/requirements.txt)"
  exit 77  # which ctest shows as a skipped test
fi
exec "$python" "$source_dir/training/test_recipe.py" "$source_dir/tests/golden/heldout_tinystories.txt"
