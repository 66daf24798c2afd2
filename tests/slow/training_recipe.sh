#!/usr/bin/env bash
# The recipe of the embedded models in small: prepare, train, resume, export, read back, evaluate (PyTorch; about a minute
# once its environment is there). PENSTOCK_TORCH_PYTHON names a Python that has training/requirements.txt already.
set -euo pipefail
python=${PENSTOCK_TORCH_PYTHON:-}
if [ -z "$python" ]; then
  venv=$PENSTOCK_BUILD/venv/training
  [ -x "$venv/bin/python" ] || python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet -r "$PENSTOCK_SOURCE/training/requirements.txt"
  python=$venv/bin/python
fi
cd "$PENSTOCK_SOURCE/training"
exec "$python" test_recipe.py ../tests/golden/heldout_tinystories.txt
