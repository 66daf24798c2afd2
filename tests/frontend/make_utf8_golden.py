#!/usr/bin/env python3
"""Writes tests/golden/utf8_replace.json: byte strings (hex) and what bytes.decode(errors="replace") makes of them."""
import json
import pathlib
import random

random.seed(7)
HAND = ["", "61", "c3a9", "c3", "e282ac", "e282", "e2", "f09f918b", "f09f91", "f09f", "f0", "80", "bf", "c0af", "c1bf",
        "e080af", "e09fbf", "e0a080", "eda080", "ed9fbf", "f08080af", "f0908080", "f48fbfbf", "f4908080", "f5", "ff", "fe",
        "c3c3a9", "e282e282ac", "f09f91f09f918b", "61e28262", "e2828261", "f0808041", "c380", "e18080e2f09192f1bf41"]
cases = [bytes.fromhex(h) for h in HAND]
POOL = [0x41, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xc2, 0xdf, 0xe0, 0xe1, 0xed, 0xef, 0xf0, 0xf1, 0xf4, 0xf5, 0xff]
cases += [bytes(random.choice(POOL) for _ in range(random.randint(1, 12))) for _ in range(300)]
rows = ",\n".join(json.dumps([c.hex(), c.decode(errors="replace")], ensure_ascii=True) for c in cases)
out = pathlib.Path(__file__).parent.parent / "golden" / "utf8_replace.json"
out.write_text("[\n" + rows + "\n]\n")
print(f"{out}: {len(cases)} cases")
