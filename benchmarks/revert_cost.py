"""What a revert or a restore costs: what the commit changed, or what the table has become?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Final, NamedTuple
from unittest.mock import patch

from benchmarks.delta_tables import TABLE, add, create, opened, path, remove
from benchmarks.lakes import Workshop
from benchmarks.report import Cell, Findings, at_most, table
from benchmarks.writers import write_each
from penstock import Lake
from penstock.formats.delta.lake.calls import GetTableVersions, TableCommit, WriterReads
from penstock.formats.delta.protocol.names import LOG
from penstock.model.keys import Key
from penstock.storage.places import Place

QUESTION = (
    "Does it cost more to revert a commit to a Delta table, or to restore it, when it is large and old?"
)

FILES_EACH: Final = 10
TIMES_MOST: Final = 2.0
WRITERS: Final = 16
APPEND: Final = "an append"
DELETE: Final = "a delete"
NEWEST: Final = "the newest commit"
RESTORE: Final = "the last 10 versions, by a restore"
BACK: Final = 10
FIRST_NEW: Final = 1_000_000
"""Commits with such numbers and higher ones have files that no others have."""
KEY: Final = Key.parse(TABLE)


class Cost(NamedTuple):
    """What reverts of single commits cost, all of the same kind."""

    what: str
    files: int
    commits: int
    ms: float
    cpu_ms: float
    """Of the process, with what it publishes in the background."""
    cold_ms: float
    cold_cpu_ms: float
    cold_reads: int
    """Files of the table's log that the cold one reads."""


class Taken(NamedTuple):
    """What one undo took."""

    ms: float
    cpu_ms: float
    reads: int


Undo = Callable[[Lake], Callable[[Lake], object]]
"""What prepares an undo, which is measured then."""


def ask(workshop: Workshop) -> Findings:
    small, large = workshop.size(100, 20), workshop.size(10_000, 60)
    rows: list[Cost] = []
    for commits in (small, large):
        with workshop.place() as place:
            rows += _measured(workshop, place, commits)
    of = {(one.what, one.commits): one for one in rows}
    goals = [
        at_most(
            f"undoing {what} among {large:,} commits, times the same among {small:,}, {how}, CPU time",
            getattr(of[what, large], figure) / getattr(of[what, small], figure),
            TIMES_MOST,
            "×",
        )
        for what in (APPEND, DELETE, NEWEST, RESTORE)
        for how, figure in (("warm", "cpu_ms"), ("cold", "cold_cpu_ms"))
    ]
    return Findings(
        tables=(
            table(
                f"Undoing commits of {FILES_EACH} files each, appends and deletes from the middle of history",
                (
                    "what is undone",
                    "files",
                    "commits",
                    "median ms",
                    "CPU ms",
                    "cold ms",
                    "cold, CPU ms",
                    "log files read, cold",
                ),
                (list[Cell](one) for one in rows),
                "On SQLite, durable, with a log on a local disk, a checkpoint before the commits that are "
                "reverted and one at the end; the revert is published when it is done. Cold is the "
                "first revert after the lake was opened. Later commits are looked through that did more "
                "than append, and for a delete the checkpoint before it, where its files are described. "
                "Where more than 64 such commits came, the newest checkpoint says whether the files are "
                "there. What grows with the table is the look-up in a checkpoint, and the listing of the "
                "log's folder on a disk. Reads are counted in the log's folder.",
            ),
        ),
        goals=tuple(goals),
    )


def _measured(workshop: Workshop, place: Path, commits: int) -> list[Cost]:
    samples = workshop.size(9, 2)
    with opened(place) as lake:
        create(lake)
        _grow(lake, 0, commits // 2)
        _checkpoint(lake, commits)
        appended = [_append(lake, commits // 2 + number) for number in range(2 * samples)]
        deleted = [_delete(lake, number) for number in range(2 * samples)]
        _grow(lake, commits // 2 + 2 * samples, commits)
        _checkpoint(lake, commits + 1)
    found = []
    for what, chosen in ((APPEND, appended), (DELETE, deleted)):
        undo = [partial(_revert, commit=one) for one in chosen]
        found.append(_cost(place, what, commits, undo, samples))
    found.append(_cost(place, NEWEST, commits, [_revert_newest] * 2 * samples, samples))
    found.append(_cost(place, RESTORE, commits, [_restore] * 2 * samples, samples))
    return found


def _cost(place: Path, what: str, commits: int, undo: Sequence[Undo], samples: int) -> Cost:
    cold = [_timed(place, one) for one in undo[:samples]]
    with opened(place, wait_s=60.0) as lake:
        warm = [_taken(lake, one(lake)) for one in undo[samples - 1 :]][1:]
    ms, cpu_ms, cold_ms, cold_cpu_ms = (
        median(getattr(one, figure) for one in taken) for taken in (warm, cold) for figure in ("ms", "cpu_ms")
    )
    return Cost(
        what=what,
        files=commits * FILES_EACH,
        commits=commits,
        ms=ms,
        cpu_ms=cpu_ms,
        cold_ms=cold_ms,
        cold_cpu_ms=cold_cpu_ms,
        cold_reads=round(median(one.reads for one in cold)),
    )


def _timed(place: Path, undo: Undo) -> Taken:
    """What an undo takes where a lake was just opened."""
    with opened(place, wait_s=60.0) as lake:
        prepared = undo(lake)
    with opened(place, wait_s=60.0) as lake:
        return _taken(lake, prepared)


def _taken(lake: Lake, undo: Callable[[Lake], object]) -> Taken:
    with _counted() as reads:
        start, cpu_start = perf_counter(), process_time()
        undo(lake)
        ms, cpu_ms = (perf_counter() - start) * 1000, (process_time() - cpu_start) * 1000
        return Taken(ms, cpu_ms, len(reads))


def _revert(_: Lake, commit: str) -> Callable[[Lake], object]:
    return lambda lake: lake.revert(commit)


def _revert_newest(lake: Lake) -> Callable[[Lake], object]:
    return _revert(lake, lake.branch().head)


def _restore(lake: Lake) -> Callable[[Lake], object]:
    (status,) = lake.delta.status(TABLE)
    for number in range(BACK):
        _append(lake, FIRST_NEW + status.latest_version + number)
    return lambda lake: lake.table(TABLE).restore(version=status.latest_version)


@contextmanager
def _counted() -> Iterator[list[str]]:
    """The names of files that are read from logs."""
    names: list[str] = []
    real = Place.read

    def read(self: Place, wanted: Iterable[str]) -> Iterator[bytes | None]:
        asked = list(wanted)
        names.extend(one for one in asked if one.startswith(LOG))
        return real(self, asked)

    with patch.object(Place, "read", read):
        yield names


def _grow(lake: Lake, first: int, end: int) -> None:
    def write(writer: int, number: int) -> None:
        place = first + number * WRITERS + writer
        if place < end:
            _append(lake, place)

    write_each(-(-(end - first) // WRITERS), WRITERS, write)


def _checkpoint(lake: Lake, number: int) -> None:
    """Let the table be as if its commits had come one by one: all are published, there is a checkpoint of the
    last ones, and the commit after them knows of it."""
    lake.delta.publish(TABLE)
    lake.delta.checkpoint(TABLE)
    _append(lake, number)
    lake.delta.publish(TABLE)


def _files(number: int) -> str:
    return "".join(map(add, range(number * FILES_EACH, (number + 1) * FILES_EACH)))


def _append(lake: Lake, number: int) -> str:
    """Add files as Penstock's own writers do, who name every file anew."""
    now = lake.do(GetTableVersions(key=KEY, limit=0))
    one = TableCommit(
        key=KEY,
        actions=_files(number),
        table=now.id,
        read_version=now.latest_version,
        read_tip=now.tip,
        reads=WriterReads(),
    )
    return lake.delta.commit([one]).commit.id


def _delete(lake: Lake, number: int) -> str:
    """Remove the files of one of the first commits, as a writer that read just these."""
    files = range(number * FILES_EACH, (number + 1) * FILES_EACH)
    (status,) = lake.delta.status(TABLE)
    for file in files:  # a revert looks whether they are there
        Path(status.location, path(file)).touch()
    looked = WriterReads(files=tuple(map(path, files)))
    one = TableCommit(
        key=KEY,
        actions="".join(map(remove, files)),
        read_version=status.latest_version,
        reads=looked,
    )
    return lake.delta.commit([one]).commit.id
