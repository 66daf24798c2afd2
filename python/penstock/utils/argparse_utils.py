"""vLLM's argument parser for scripts."""
from __future__ import annotations

import argparse
import sys
from typing import Any, Optional, Sequence


class FlexibleArgumentParser(argparse.ArgumentParser):
    """An ArgumentParser whose options may be written with dashes or underscores."""

    def parse_known_args(  # type: ignore[override]
            self, args: Optional[Sequence[str]] = None, namespace: Any = None) -> Any:
        """As ArgumentParser.parse_known_args()."""
        given = sys.argv[1:] if args is None else list(args)
        return super().parse_known_args([self._dashed(word) for word in given], namespace)

    @staticmethod
    def _dashed(word: str) -> str:
        if not word.startswith("--"):
            return word
        name, equals, value = word.partition("=")
        return name.replace("_", "-") + equals + value
