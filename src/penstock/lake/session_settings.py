"""How a Spark session names its lake and tables: by settings, and by options of reads and writes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from penstock.errors import InvalidRequest
from penstock.model.decoders import get_json_decoder
from penstock.model.keys import Key
from penstock.storage.hadoop import HadoopPath, parse_hadoop_path

OPTION: Final = "penstock."
"""How the names of options begin that are for the lake."""
SETTING: Final = "spark.penstock."
"""How the names of a session's settings begin that are for the lake."""
SETTINGS: Final = ("lake", "lake.id", "ref", "tables")


def check_settings(names: Iterable[str]) -> None:
    """``InvalidRequest`` for a setting of a session that looks like the lake's, and that there is not."""
    settings = {SETTING + name for name in SETTINGS}
    if unknown := sorted(name for name in names if name.startswith(SETTING) and name not in settings):
        raise InvalidRequest(
            f"unknown setting '{unknown[0]}'; the settings are {', '.join(sorted(settings))}\n  Unset it, or "
            "correct its name."
        )


def parse_mapped_tables(text: str, home: str = "") -> dict[HadoopPath, Key]:
    """Paths and tables, as the session's setting has them; ``InvalidRequest`` if they cannot be these."""
    try:
        tables = get_json_decoder(dict[str, str]).decode(text) if text else {}
    except msgspec.MsgspecError:
        raise InvalidRequest(
            "the setting spark.penstock.tables must be a JSON object, such as "
            """{"s3://bucket/raw/events": "raw.events"}"""
        ) from None
    keys: dict[HadoopPath, Key] = {}
    for path, key in tables.items():
        if ".." in path.split("/"):
            raise InvalidRequest(f"'{path}' cannot be mapped to '{key}': write the path without '..'")
        place = parse_hadoop_path(path, home)
        if place in keys and keys[place] != Key.parse(key):
            raise InvalidRequest(f"'{path}' is mapped to both '{keys[place]}' and '{key}': choose one")
        keys[place] = Key.parse(key)
    return keys
