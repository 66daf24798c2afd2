"""Prints embeddings."""
from __future__ import annotations

from typing import Any


def print_embeddings(embeds: Any, prefix: str = "Embeddings") -> None:
    """Prints the first values of a vector and its size."""
    numbers = embeds.tolist() if hasattr(embeds, "tolist") else list(embeds)
    shown = f"{str(numbers[:4])[:-1]}, ...]" if len(numbers) > 4 else str(numbers)
    print(f"{prefix}: {shown} (size={len(numbers)})")


__all__ = ["print_embeddings"]
