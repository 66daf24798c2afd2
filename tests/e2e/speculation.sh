#!/usr/bin/env bash
# Every drafter on the models that come with the program, 100 prompts: the text is that of plain decoding, bit for bit.
set -euo pipefail
PENSTOCK_ALL_PROMPTS=1 exec "${PENSTOCK_BUILD:?}/tests/tests_engine" --gtest_filter='Models/Drafters.*'
