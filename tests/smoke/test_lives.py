"""A life of a table of each format, as a program has it: made, branched, merged, undone, swept.

The rules are tested where they are made. This says within seconds that none of the parts has come loose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import penstock
from penstock.lake.lake import Lake
from penstock.lake.table import Table
from tests.server.running import local


@pytest.fixture(params=["embedded", "behind a server"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lake]:
    from penstock.server.run import load_apis

    with penstock.open(tmp_path / "lake", author="ada") as own:
        if request.param == "embedded":
            yield own
        else:
            with local(own.catalogue, load_apis()) as server, penstock.open(server.url, author="ada") as far:
                yield far


def make_of(kind: str) -> Callable[[Lake], None]:
    """Make the table with its first row."""

    def make(lake: Lake) -> None:
        with lake.transaction(message="make it") as tx:
            tx.write(pa.table({"id": [1]}), "sales.orders", format=kind)

    return make


def add_rows(table: Table, *ids: int) -> None:
    table.append(pa.table({"id": list(ids)}))


def rows_of(table: Table) -> list[Any]:
    return sorted(table.to_arrow()["id"].to_pylist())


def add_files(table: Table, *ids: int) -> None:
    table.files.write({f"{one}.csv": b"id\n%d\n" % one for one in ids})


def files_of(table: Table) -> list[Any]:
    return sorted(int(one.path.removesuffix(".csv")) for one in table.files.walk())


@pytest.mark.parametrize(
    ("make", "add", "seen"),
    [
        pytest.param(make_of("delta"), add_rows, rows_of, id="delta"),
        pytest.param(make_of("lance"), add_rows, rows_of, id="lance"),
        pytest.param(lambda lake: add_files(lake.table("sales.orders"), 1), add_files, files_of, id="files"),
    ],
)
def test_a_table_is_branched_merged_undone_and_swept(
    lake: Lake, make: Callable[[Lake], None], add: Callable[..., None], seen: Callable[[Table], list[Any]]
) -> None:
    make(lake)
    made = lake.branch().head
    dev = lake.branch("dev").create()
    add(lake.table("sales.orders", "dev"), 2, 3)
    add(lake.table("sales.orders"), 4)
    assert seen(lake.table("sales.orders")) == [1, 4]
    merged = dev.merge_into("main")
    assert merged.conflicts == ()
    assert seen(lake.table("sales.orders")) == [1, 2, 3, 4]
    lake.revert("main")
    assert seen(lake.table("sales.orders")) == [1, 4]
    assert seen(lake.at(made).table("sales.orders")) == [1]
    dev.delete()
    lake.sweep()
    assert seen(lake.table("sales.orders")) == [1, 4]
    assert lake.fsck().damages == ()
