"""A lake behind a server behaves as the lake itself: the same results, the same errors to the last detail."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any

import pytest

import penstock
from penstock.errors import InvalidRequest
from penstock.lake.lake import Lake
from penstock.lake.remote import RemoteCatalogue
from penstock.lake.table import Table
from penstock.lake.views import Branch, Snapshot, Tag
from penstock.testing.journal import JournalFormat, lines_of
from tests.remote.conftest import PATIENT
from tests.remote.scenarios import READS, WRITES, prepare, table, told, without_chance
from tests.remote.serving import Served, serving


@pytest.fixture(scope="module")
def lakes() -> Iterator[tuple[Lake, Lake]]:
    """A prepared lake, and the same one through a server."""
    with penstock.open("memory:", author="tester", formats=[JournalFormat()]) as embedded:
        prepare(embedded)
        with (
            serving(embedded.catalogue) as server,
            Lake(RemoteCatalogue(server.url, patience=PATIENT), author="tester") as remote,
        ):
            yield embedded, remote


@pytest.mark.parametrize("name", READS)
def test_a_read_gives_the_same(lakes: tuple[Lake, Lake], name: str) -> None:
    embedded, remote = lakes
    expected = told(lambda: READS[name](embedded))
    assert told(lambda: READS[name](remote)) == expected
    assert repr(told(lambda: READS[name](remote))) == repr(expected)


@pytest.mark.parametrize("name", WRITES)
def test_writes_give_the_same(embedded: Lake, remote: Lake, name: str) -> None:
    with penstock.open("memory:", author="tester", formats=[JournalFormat()]) as other:
        expected = without_chance(WRITES[name](other))
    assert without_chance(WRITES[name](remote)) == expected
    assert embedded.fsck().damages == ()


def test_what_was_written_through_a_server_is_in_the_lake(embedded: Lake, remote: Lake) -> None:
    commit = remote.branch().put("a.b", table(1))
    assert embedded.show() == commit
    assert embedded.table("a.b").content == remote.table("a.b").content


def test_a_format_runs_where_the_server_is(embedded: Lake, remote: Lake) -> None:
    WRITES["changing"](remote)
    assert lines_of(embedded.kernel, "diary") == ["new", "year"]


def test_a_lake_behind_a_server_is_where_the_server_is(embedded: Lake, remote: Lake, served: Served) -> None:
    assert remote.url == remote.about.url == served.url
    assert repr(remote) == f"<Lake {served.url} default branch 'main'>"
    assert embedded.url == "memory:"
    assert (embedded.is_embedded, remote.is_embedded) == (True, False)
    with pytest.raises(InvalidRequest, match="is a server"):
        _ = remote.kernel


ELSEWHERE: dict[type, tuple[str, ...]] = {
    Lake: (
        *("kernel", "is_embedded", "url", "create_table", "delta", "places", "files_system"),
        *("add_check", "remove_check", "checks", "import_lance", "export_lance"),
        *("finish_background", "catalogue", "is_made_here", "begin_write"),
        *("sql", "diff_rows"),
    ),
    Snapshot: ("at", "sql"),
    Table: (
        *("snapshot", "to_arrow", "append", "overwrite", "commit", "append_actions", "get_commits"),
        *("backfill_to_version", "location", "version", "schema", "properties", "history"),
        *("write", "outside_read_set", "delta", "require_branch"),
        *("scan", "arrow_schema", "count", "head", "num_rows", "to_batches", "to_pandas", "to_polars"),
        *("delete", "update", "merge", "optimize", "analyze", "checkpoint", "vacuum"),
    ),
}
"""What is tried by other tests: above, and what is of Delta tables, which takes files, by ``test_delta``.
Checks, and waiting for what is done in the background, are only for the process that the lake is in. Lance
tables come and go by ``tests/lance``, and rows of any table in a transaction by ``tests/transactions``."""


def test_the_scenarios_use_everything_that_there_is() -> None:
    called: set[CodeType] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            called.add(frame.f_code)

    sys.setprofile(note)
    try:
        with penstock.open("memory:", author="tester", formats=[JournalFormat()]) as lake:
            prepare(lake)
            for read in READS.values():
                told(lambda read=read: read(lake))  # type: ignore[misc]
        for write in WRITES.values():
            with penstock.open("memory:", author="tester", formats=[JournalFormat()]) as lake:
                write(lake)
    finally:
        sys.setprofile(None)
    unused = [
        f"{kind.__name__}.{name}"
        for kind in (Lake, Branch, Tag, Snapshot, Table)
        for name, code in _public(kind)
        if code not in called and name not in ELSEWHERE.get(kind, ())
    ]
    assert unused == []


def _public(kind: type) -> Iterator[tuple[str, CodeType]]:
    for name in dir(kind):
        attribute: Any = getattr(kind, name)
        function: Any = attribute.fget if isinstance(attribute, property) else attribute
        if not name.startswith("_") and hasattr(function, "__code__"):
            yield name, function.__code__
