"""Lance tables in a real lake, written and read by Lance itself through the lake's namespace."""

from __future__ import annotations

from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

from penstock import Lake
from penstock.formats.lance.content import LanceTable
from penstock.formats.lance.lake.calls import PromoteLance
from penstock.formats.lance.manifest_reader import ManifestReader
from penstock.formats.lance.manifests import Manifest
from penstock.formats.lance.plugin import LancePlugin
from penstock.formats.lance.state import LanceState, LanceTableVersion, LanceVersionReader, decode_state
from penstock.lake.embedded import Embedded
from penstock.model.keys import Key
from tests.plugins import plugin_of

ITEMS = "items"


def rows(*keys: int) -> pa.Table:
    return pa.table({"k": pa.array(keys, pa.int64()), "v": pa.array([float(key) for key in keys])})


def write(lake: Lake, ref: str, *keys: int, mode: str = "append", table: str = ITEMS) -> Any:
    """Write rows with these keys to a table, as a branch or a transaction has it."""
    import lance

    return lance.write_dataset(
        rows(*keys), namespace_client=lake.lance(ref), table_id=table.split("."), mode=mode
    )


def opened(lake: Lake, ref: str = "main", table: str = ITEMS) -> Any:
    import lance

    return lance.dataset(namespace_client=lake.lance(ref), table_id=table.split("."))


def delete(lake: Lake, ref: str, *keys: int, table: str = ITEMS) -> None:
    opened(lake, ref, table).delete(f"k in ({', '.join(map(str, keys))})")


def keys_of(lake: Lake, ref: str = "main", table: str = ITEMS) -> list[int]:
    """The keys that a table has, as the lake tells."""
    found: list[int] = opened(lake, ref, table).to_table(columns=["k"])["k"].to_pylist()
    return sorted(found)


def keys_seen(lake: Lake, table: str = ITEMS) -> list[int]:
    """The keys that a reader sees who knows nothing of the lake, once the versions are promoted."""
    import lance

    lake.do(PromoteLance(key=Key.parse(table)))
    found: list[int] = lance.dataset(content(lake, "main", table).location).to_table()["k"].to_pylist()
    return sorted(found)


def embedded(lake: Lake) -> Embedded:
    assert isinstance(lake.catalogue, Embedded)
    return lake.catalogue


def content(lake: Lake, ref: str = "main", table: str = ITEMS) -> LanceTable:
    here = embedded(lake)
    found = here.read_content_at(here.resolve_commit(ref), Key.parse(table))
    assert isinstance(found, LanceTable)
    return found


def state(lake: Lake, ref: str = "main", table: str = ITEMS) -> LanceState:
    return decode_state(content(lake, ref, table))


def versions(lake: Lake, ref: str = "main", table: str = ITEMS) -> LanceVersionReader:
    return LanceVersionReader(lake.kernel.objects, state(lake, ref, table))


def newest(lake: Lake, ref: str = "main", table: str = ITEMS) -> tuple[int, LanceTableVersion]:
    found = versions(lake, ref, table).find_newest()
    assert found is not None
    return found


def manifest(lake: Lake, ref: str = "main", table: str = ITEMS) -> Manifest:
    """The manifest of the newest version, as it is stored."""
    number, version = newest(lake, ref, table)
    found = ManifestReader(plugin_of(embedded(lake), LancePlugin).parts.places)
    return found.read_manifest(content(lake, ref, table).location, "", number, version)


def filtered(lake: Lake, ref: str, *keys: int) -> list[int]:
    """The rows of some keys, by way of an index."""
    wanted = " or ".join(f"k = {key}" for key in keys)
    assert "ScalarIndexQuery" in opened(lake, ref).scanner(filter=wanted).explain_plan()
    return sorted(opened(lake, ref).to_table(filter=wanted)["k"].to_pylist())
