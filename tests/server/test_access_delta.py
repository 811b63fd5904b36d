"""Delta tables behind tokens: places, and what is looked at for whom."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import penstock
from penstock.errors import Denied, InvalidRequest, LocationRefused
from penstock.formats.delta.lake.calls import CreateTable, GetTableStatus
from penstock.kernel.reachable import Progress, show_no_progress
from penstock.lake.call import Call
from penstock.lake.catalogue import Catalogue
from penstock.lake.lake import Lake
from penstock.lake.row_input import write_schema_text
from penstock.model.keys import Key
from penstock.server.access import CheckedCatalogue
from tests.server.access import caller

ROWS = pa.table({"day": ["1"]})
SCHEMA = write_schema_text(ROWS.schema)
R = TypeVar("R")


class Noting:
    """A catalogue that remembers what it was asked."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue, self.page_max = catalogue, catalogue.page_max
        self.asked: list[Call[object]] = []

    def do(self, call: Call[R], progress: Progress = show_no_progress) -> R:
        self.asked.append(call)  # type: ignore[arg-type]
        return self._catalogue.do(call, progress)

    def close(self) -> None:
        """It is not this one's to close."""


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with penstock.open(tmp_path / "lake") as lake:
        for key in ("hr.pay", "sales.eu.orders", "sales.orders", "sales.returns"):
            lake.create_table(key, schema=ROWS.schema)
        yield lake


def test_storage_is_looked_at_only_for_tables_that_the_caller_may_see(lake: Lake) -> None:
    noting = Noting(lake.catalogue)
    guarded = CheckedCatalogue(noting, caller("read:*:sales.*"))
    found = guarded.do(GetTableStatus())
    assert [str(one.key) for one in found] == ["sales.eu.orders", "sales.orders", "sales.returns"]
    looked = [str(call.key) for call in noting.asked if isinstance(call, GetTableStatus)]
    assert looked == ["sales.eu.orders", "sales.orders", "sales.returns"]
    page = guarded.do(GetTableStatus(after=found[0].key, limit=1))
    assert [str(one.key) for one in page] == ["sales.orders"]
    with pytest.raises(InvalidRequest, match="limit"):
        guarded.do(GetTableStatus(limit=-1))


def test_a_writer_of_some_keys_names_no_place(lake: Lake) -> None:
    place = f"{lake.warehouse}/mine"
    call = CreateTable(key=Key("sales", "new"), schema=SCHEMA, location=place)
    with pytest.raises(Denied):
        CheckedCatalogue(lake.catalogue, caller("write:*:sales.*")).do(call)
    assert not lake.table("sales.new").exists
    assert CheckedCatalogue(lake.catalogue, caller("write")).do(call).location == place


def test_a_refused_place_does_not_tell_whose_it_is(lake: Lake) -> None:
    for place in (lake.table("hr.pay").location, f"{lake.table('hr.pay').location}/x", lake.warehouse):
        call = CreateTable(key=Key("sales", "new"), schema=SCHEMA, location=place)
        with pytest.raises(LocationRefused) as refused:
            CheckedCatalogue(lake.catalogue, caller("write")).do(call)
        assert "hr" not in refused.value.message.replace(place, "")
