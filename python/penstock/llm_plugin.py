"""Penstock's models in `llm`, the command line tool: pip install "penstock[llm]", then llm -m penstock 'Once upon a time'.

Models: "penstock" (the built-in story model), "penstock/NAME" for each model that `penstock models` lists, and those of the file
penstock-models.yaml beside llm's log (`llm logs path` shows where that is). A server beside the program opens the model when it is first asked and
ends with the program. With PENSTOCK_URL set, the models are those of the server at that address; its key is PENSTOCK_API_KEY or
`llm keys set penstock`.
"""
from __future__ import annotations

from typing import Any

import click
import llm


@llm.hookimpl  # type: ignore[untyped-decorator,unused-ignore]
def register_models(register: Any) -> None:
    """Offers the models that give text."""
    _register(register, pools=False)


@llm.hookimpl  # type: ignore[untyped-decorator,unused-ignore]
def register_embedding_models(register: Any) -> None:
    """Offers the models that give vectors."""
    _register(register, pools=True)


def _register(register: Any, pools: bool) -> None:
    try:
        from ._llm_entries import entries
        from ._llm_models import AsyncPenstockModel, PenstockEmbeddingModel, PenstockModel
    except ImportError as error:
        click.echo(f"penstock: its models need llm 0.36 or newer: {error}", err=True)
        return
    for entry in entries():
        if entry.pools and pools:
            register(PenstockEmbeddingModel(entry), aliases=entry.aliases)
        elif not entry.pools and not pools:
            register(PenstockModel(entry), AsyncPenstockModel(entry), aliases=entry.aliases)
