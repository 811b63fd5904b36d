"""What is cleaned up beside a log: bodies of commits and files of branches that nobody names any more."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.formats.delta.protocol.durations import DAY_MS
from penstock.formats.delta.publishing.side_files import needed_files, plan_scratch
from penstock.model.nessie import DeltaTable
from penstock.storage.places import Places
from tests.formats.delta.ratified import BRANCH, Ratified, publishing, ratify

NOW_MS = 20_000 * DAY_MS


@pytest.fixture
def places() -> Iterator[Places]:
    opened = Places()
    yield opened
    opened.close()


@pytest.fixture
def table(tmp_path: Path, places: Places) -> Ratified:
    return Ratified(str(tmp_path), places)


def age(root: Path, days: float) -> None:
    """Make every file this many days old."""
    for one in root.rglob("*"):
        if one.is_file():
            os.utime(one, ns=(0, int((NOW_MS - days * DAY_MS) * 1_000_000)))


def files(root: Path) -> set[str]:
    return {str(one.relative_to(root)) for one in (root / "_penstock").rglob("*") if one.is_file()}


def bodies(table: Ratified, content: DeltaTable) -> set[str]:
    assert content.state
    return {entry.body for _, entry in table.line.read_entries_after(-1, table.read) if entry.body}


def planned(table: Ratified, *contents: DeltaTable) -> set[str]:
    needed = needed_files(contents, table.read)
    return set(plan_scratch(table.place, needed, now_ms=NOW_MS).names)


def test_what_a_retained_commit_names_stays(table: Ratified, places: Places, tmp_path: Path) -> None:
    first = ratify(table, 40)
    kept = bodies(table, first)
    publishing(table, places).publish_line(first)
    table.forget(39)
    table.held(line=BRANCH)
    branch = table.held(line=BRANCH)
    publishing(table, places).provide_files(branch)
    age(tmp_path, 30)
    own = {table.name(40), table.name(41)}
    assert files(tmp_path) == kept | own
    assert planned(table, first, branch) == set()
    assert planned(table, branch) == kept, "the log has them"
    assert planned(table, first) == own, "the branch is gone"
    assert planned(table) == kept | own


def test_a_run_that_one_line_has_forgotten_in_part_counts_for_another(
    table: Ratified, tmp_path: Path
) -> None:
    older = ratify(table, 20)
    kept = bodies(table, older)
    newer = table.forget(10)
    age(tmp_path, 30)
    assert planned(table, newer, older) == set()
    assert planned(table, older, newer) == set()
    assert kept == files(tmp_path)


def test_what_may_be_of_a_request_that_is_under_way_stays(table: Ratified, tmp_path: Path) -> None:
    table.held("{}", body=True)
    age(tmp_path, 0.9)
    assert planned(table) == set()
    age(tmp_path, 1.1)
    assert planned(table) == files(tmp_path)


def test_files_of_others_stay(table: Ratified, tmp_path: Path) -> None:
    for name in ("_penstock/notes.txt", "_penstock/mine/1.json", "_penstock/bodies/notes.txt", "data.json"):
        table.place.create(name, b"somebody's")
    leftover = f"_penstock/probe/{'0' * 32}"
    table.place.create(leftover, b"")
    age(tmp_path, 30)
    assert planned(table) == {leftover}


def test_a_plan_tells_how_much_it_frees(table: Ratified, tmp_path: Path) -> None:
    table.held("{}", body=True)
    age(tmp_path, 30)
    (name,) = files(tmp_path)
    found = plan_scratch(table.place, (), now_ms=NOW_MS)
    assert (found.first, found.names, found.size_bytes) == (None, (name,), (tmp_path / name).stat().st_size)
    assert files(tmp_path) == {name}, "nothing is deleted by planning"
