#!/usr/bin/env bash
# Every drafter on the models that come with the program, 40 prompts (PENSTOCK_PROMPTS sets another number): the text is that of
# plain decoding, bit for bit.
set -euo pipefail
PENSTOCK_PROMPTS=${PENSTOCK_PROMPTS:-40} exec "${PENSTOCK_BUILD:?}/tests/tests_engine" --gtest_filter='Models/Drafters.*'
