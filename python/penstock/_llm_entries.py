"""What the plugin for `llm` offers: models on this machine, of a server elsewhere, and those of penstock-models.yaml."""
from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import urllib.parse
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Tuple

import click
import llm
import yaml

from ._llm_server import Children, Server, ServerError

_children = Children()


@dataclass(frozen=True)
class Entry:
    """A model that is offered.

    Attributes:
        model_id: its name in llm.
        model: what the server opens; of a server elsewhere, its name there.
        url: address of a server elsewhere, as _address gives it; empty: a server beside this process.
        options: flags of `penstock serve` for the server beside this process.
        key: name, among llm's keys, of that of a server elsewhere; empty: "penstock".
    """

    model_id: str
    model: str
    url: str = ""
    pools: bool = False
    aliases: Tuple[str, ...] = ()
    options: Dict[str, Any] = field(default_factory=dict)
    key: str = ""

    def server(self) -> Server:
        """Returns the server that answers for the model; started if need be. Errors: EngineError."""
        return Server(self.url, self.model) if self.url else _children.server_of(self.model, self.options)


@functools.lru_cache(maxsize=None)
def entries() -> Tuple[Entry, ...]:
    """Returns the models that are offered. What cannot be read is told on stderr and left out."""
    url = os.environ.get("PENSTOCK_URL", "").strip()
    found = [*_configured(), *(_served(url) if url else _on_disk())]
    return tuple({entry.model_id: entry for entry in reversed(found)}.values())[::-1]


def _address(text: str) -> str:
    """Returns the address of a server elsewhere without "/v1", with http:// where no scheme is given. Errors: ValueError."""
    url = text.strip()
    try:
        parts = urllib.parse.urlsplit(url if "://" in url else "http://" + url)
        right = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and not parts.query and not parts.fragment
    except ValueError as error:
        raise ValueError(f"address of a server: expected http://HOST:PORT, got {text!r}: {error}") from error
    if not right or any(one.isspace() for one in url):
        raise ValueError(f"address of a server: expected http://HOST:PORT, got {text!r}")
    path = parts.path.rstrip("/")
    return f"{parts.scheme}://{parts.netloc}{path[:-3].rstrip('/') if path.endswith('/v1') else path}"


def _served(text: str) -> List[Entry]:
    try:
        url = _address(text)
        models = Server(url, "").get("/v1/models", key_of(None))["data"]
        return [Entry(f"penstock/{one['id']}", one["id"], url, one.get("runner") == "pooling", ("penstock",) if i == 0 else ())
                for i, one in enumerate(models)]
    except (ServerError, LookupError, TypeError, ValueError) as error:
        click.echo(f"penstock: no models of PENSTOCK_URL: {error}", err=True)
        return []


def _on_disk() -> List[Entry]:
    builtin = Entry("penstock", "")
    try:
        done = subprocess.run([sys.executable, "-m", "penstock", "models", "--json"], capture_output=True, check=True, timeout=60)
        rows = json.loads(done.stdout)["models"]
        return [builtin, *(Entry(f"penstock/{row['name']}", row["name"], pools=row["runner"] == "pooling") for row in rows if row["runs"])]
    except (OSError, subprocess.SubprocessError, ValueError, LookupError) as error:
        click.echo(f"penstock: the models on this machine cannot be listed: {error}", err=True)
        return [builtin]


def _configured() -> List[Entry]:
    path = llm.user_dir() / "penstock-models.yaml"
    try:
        rows = yaml.safe_load(path.read_text()) or []
        return [_entry_of(row) for row in rows]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError, yaml.YAMLError) as error:
        click.echo(f"penstock: {path}: {error}", err=True)
        return []


def _entry_of(row: Any) -> Entry:
    known = {"model_id", "model", "url", "key", "pooling", "aliases", "options"}
    if not isinstance(row, dict) or not {"model_id", "model"} <= set(row) <= known:
        raise ValueError(f"expected a list of mappings with model_id, model and perhaps url, key, pooling, aliases, options; got {row!r}")
    return Entry(str(row["model_id"]), str(row["model"]), _address(str(row["url"])) if row.get("url") else "", row.get("pooling") is True,
                 tuple(map(str, row.get("aliases") or ())), dict(row.get("options") or {}), str(row.get("key") or ""))


def key_of(given: Optional[str], name: str = "") -> Optional[str]:
    """Returns the key of a server elsewhere: what is given (a key, or a name of llm's keys), else llm's key of that name; without a
    name llm's key "penstock", else PENSTOCK_API_KEY."""
    key: Optional[str] = llm.get_key(input=given, alias=name or "penstock", env=None if name else "PENSTOCK_API_KEY")
    return key
