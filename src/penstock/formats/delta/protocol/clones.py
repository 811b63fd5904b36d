"""Shallow clones: tables that have files of other tables, which they name by their whole addresses.

The owner notes in its own settings of the table whose files these are. No writer can change those settings,
so that a log alone leads nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final
from urllib.parse import quote

import msgspec

from penstock.model.decoders import get_json_decoder

OWNER_CONF: Final = "delta.managedCommitOwnerConf"
"""The owner's settings of a table: a JSON map of text."""
SOURCES: Final = "sources"
"""The setting that names the locations of the tables whose files a clone has: a JSON list of text."""


def clone_sources(configuration: Mapping[str, str]) -> tuple[str, ...]:
    """The locations of the tables whose files a managed table has beside its own; none for most tables."""
    settings = configuration.get(OWNER_CONF)
    return () if settings is None or SOURCES not in settings else _parse_sources(settings)


@lru_cache(maxsize=64)
def _parse_sources(settings: str) -> tuple[str, ...]:
    try:
        text = get_json_decoder(dict[str, str]).decode(settings).get(SOURCES, "[]")
        return tuple(get_json_decoder(list[str]).decode(text))
    except msgspec.MsgspecError:
        return ()


def write_sources(sources: Iterable[str]) -> dict[str, str]:
    """The owner's setting that names them; nothing if there are none."""
    names = sorted(sources)
    return {SOURCES: msgspec.json.encode(names).decode()} if names else {}


def make_absolute_address(root: str, name: str) -> str:
    """The address in a log of a file below the root of another table, by its decoded name there.

    A path of a disk is written without a scheme, since more readers take that.
    """
    path = quote(name, safe="/=")
    return f"{root}/{path}" if "://" in root else f"{quote(root)}/{path}"
