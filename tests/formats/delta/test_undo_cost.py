"""What reverts and restores of a Delta table read: what the commit changed, not what the table has become.

Counted is what a process that knows nothing yet reads of the table's storage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import penstock
from penstock import Lake, Settings
from penstock.formats.delta.branch_log.replacements import make_remove
from penstock.formats.delta.lake.calls import GetTableVersions, TableCommit, WriterReads
from penstock.formats.delta.protocol.actions import Action, Add, CommitInfo, write_commit
from penstock.model.keys import Key
from penstock.storage.places import Place
from tests.formats.delta.sides import KEY, Side, create

FEW, MANY = 10, 80


class Reads(NamedTuple):
    """How many files of a log were read, and how many bytes of commits."""

    files: int
    commit_bytes: int


@pytest.fixture
def read_names(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The files that are read from now on, each with its size."""
    found: list[tuple[str, int]] = []
    real = Place.read

    def noted(self: Place, names: Iterable[str]) -> Iterator[bytes | None]:
        named = list(names)
        for name, data in zip(named, real(self, named), strict=True):
            found.append((name, len(data or b"")))
            yield data

    monkeypatch.setattr(Place, "read", noted)
    return found


def grow(lake: Lake, name: str, commits: int) -> None:
    """Append files that nobody reads, one by one; there is a checkpoint with all but the last of them."""
    for number in range(commits):
        if number == commits - 1:
            lake.delta.publish(KEY)
            lake.delta.checkpoint(KEY)
        append(lake, file(f"{name}-{number}"))
    (Path(lake.table(KEY).location) / f"{name}-0").touch()  # it comes back
    lake.delta.publish(KEY)


def append(lake: Lake, add: Add) -> None:
    """Commit a file as Penstock's own writers do, who name every file anew."""
    now = lake.do(GetTableVersions(key=Key.parse(KEY), limit=0))
    one = TableCommit(
        key=Key.parse(KEY),
        actions=write_commit([add]).decode(),
        table=now.id,
        read_version=now.latest_version,
        read_tip=now.tip,
        reads=WriterReads(),
    )
    lake.delta.commit([one])


def file(name: str) -> Add:
    return Add(path=name, partition_values={"day": "wed"}, size=1, modification_time=1, data_change=True)


def reads_of(
    place: Path,
    names: list[tuple[str, int]],
    commits: int,
    change: Callable[[Side], object],
    undo: Callable[[Lake, str], object],
) -> Reads:
    """What it reads to undo a change with so many appends before and after it."""
    settings = Settings(publish_wait_s=0.0)
    with penstock.open(place / str(commits), settings=settings) as lake:
        side = create(lake, properties={"delta.checkpointInterval": "1000000"})
        grow(lake, "old", commits)
        change(side)
        commit = lake.branch("main").head
        grow(lake, "new", commits)
        lake.finish_background()
    with penstock.open(place / str(commits)) as lake:
        lake.finish_background()
        names.clear()
        undo(lake, commit)
        read = [one for one in names if "_delta_log" in one[0]]
        return Reads(len(read), sum(size for name, size in read if name.endswith(".json")))


def revert(lake: Lake, commit: str) -> None:
    lake.revert(commit)


CHANGES: dict[str, Callable[[Side], object]] = {
    "an append": lambda side: side.append(7),
    "a deletion of a file": lambda side: change_files(side.lake, file("old-0"), None),
    "a deletion that wrote rows anew": lambda side: change_files(side.lake, file("old-0"), file("rest")),
    "an overwrite of a day": lambda side: side.overwrite(9, day="tue"),
}


def change_files(lake: Lake, gone: Add, come: Add | None) -> None:
    """Commit as an engine does that has looked at one file."""
    (status,) = lake.delta.status(KEY)
    info = CommitInfo({"operation": "DELETE", "operationParameters": {}})
    actions: list[Action] = [info, make_remove(gone, 1), *([] if come is None else [come])]
    one = TableCommit(
        key=Key.parse(KEY),
        actions=write_commit(actions).decode(),
        read_version=status.latest_version,
        reads=WriterReads(files=(gone.path,)),
    )
    lake.delta.commit([one])


@pytest.mark.parametrize("what", CHANGES)
def test_a_revert_reads_no_more_files_of_an_old_table(
    tmp_path: Path, read_names: list[tuple[str, int]], what: str
) -> None:
    few, many = (reads_of(tmp_path, read_names, one, CHANGES[what], revert) for one in (FEW, MANY))
    assert many.files <= few.files
    assert many.commit_bytes <= 2 * few.commit_bytes


def test_a_revert_on_a_branch_reads_no_more_files_of_an_old_table(
    tmp_path: Path, read_names: list[tuple[str, int]]
) -> None:
    def on_branch(lake: Lake, commit: str) -> None:
        lake.branch("late").create()
        lake.revert(commit, "late")

    change = CHANGES["a deletion of a file"]
    few, many = (reads_of(tmp_path, read_names, one, change, on_branch) for one in (FEW, MANY))
    assert many.files <= few.files


def restore_near(lake: Lake, _: str) -> None:
    (status,) = lake.delta.status(KEY)
    lake.table(KEY).restore(version=status.latest_version - 3)


def test_a_restore_to_a_near_version_reads_the_commits_in_between(
    tmp_path: Path, read_names: list[tuple[str, int]]
) -> None:
    change = CHANGES["an append"]
    few, many = (reads_of(tmp_path, read_names, one, change, restore_near) for one in (FEW, MANY))
    assert many.files <= few.files <= 8
    assert many.commit_bytes <= 1.2 * few.commit_bytes
    with penstock.open(tmp_path / str(MANY)) as lake:
        paths = {one.path for one in lake.table(KEY).snapshot().files()}
    appended = {one for one in paths if one.startswith("new-")}
    assert appended == {f"new-{number}" for number in range(MANY - 3)}


def test_a_revert_of_the_newest_commit_reads_that_commit(
    tmp_path: Path, read_names: list[tuple[str, int]]
) -> None:
    def newest(lake: Lake, _: str) -> None:
        lake.revert(lake.branch("main").head)

    change = CHANGES["an append"]
    few, many = (reads_of(tmp_path, read_names, one, change, newest) for one in (FEW, MANY))
    assert many.files <= few.files <= 6
    assert many.commit_bytes <= 1.2 * few.commit_bytes
