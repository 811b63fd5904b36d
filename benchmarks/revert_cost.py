"""What a revert costs: what the commit changed, or what the table has become?"""

from __future__ import annotations

from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Final, NamedTuple

from benchmarks.delta_tables import TABLE, add, create, opened, path, remove
from benchmarks.lakes import Workshop
from benchmarks.report import Cell, Findings, at_most, table
from benchmarks.writers import write_each
from penstock import Lake
from penstock.lake.delta_calls import Looked, TableCommit
from penstock.model.keys import Key

QUESTION = "Does it cost more to revert a commit to a Delta table when the table is large and old?"

FILES_EACH: Final = 10
TIMES_MOST: Final = 2.0
WRITERS: Final = 16
APPEND: Final = "an append"
DELETE: Final = "a delete"
KEY: Final = Key.parse(TABLE)


class Cost(NamedTuple):
    """What reverts of single commits cost, all of the same kind."""

    what: str
    files: int
    commits: int
    ms: float
    cold_ms: float


def ask(workshop: Workshop) -> Findings:
    small, large = workshop.size(100, 20), workshop.size(10_000, 60)
    rows: list[Cost] = []
    for commits in (small, large):
        with workshop.place() as place:
            rows += _measured(workshop, place, commits)
    of = {(one.what, one.commits): one for one in rows}
    goals = [
        at_most(
            f"revert of {what} among {large:,} commits, times the same among {small:,}, {how}",
            getattr(of[what, large], figure) / getattr(of[what, small], figure),
            TIMES_MOST,
            "×",
        )
        for what in (APPEND, DELETE)
        for how, figure in (("warm", "ms"), ("cold", "cold_ms"))
    ]
    return Findings(
        tables=(
            table(
                f"Revert of one commit of {FILES_EACH} files, from the middle of a table's history",
                ("commit", "files", "commits", "median ms", "cold ms"),
                (list[Cell](one) for one in rows),
                "On SQLite, durable, with a log on a local disk, a checkpoint before the commits that are "
                "reverted and one at the end; the revert is published when it is done. Cold is the "
                "first revert after the lake was opened: it looks up in the newest checkpoint whether the "
                "files are there, and for a delete also in the one before. After a delete, later commits "
                "are looked through for overwrites.",
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
        cold = [_timed(place, [one])[0] for one in chosen[:samples]]
        warm = _timed(place, chosen[samples - 1 :])[1:]
        found.append(Cost(what, commits * FILES_EACH, commits, median(warm), median(cold)))
    return found


def _timed(place: Path, commits: list[str]) -> list[float]:
    """Milliseconds of each of some reverts, one after the other in one process that has done nothing else."""
    taken = []
    with opened(place, wait_s=60.0) as lake:
        for commit in commits:
            start = perf_counter()
            lake.revert(commit)
            taken.append((perf_counter() - start) * 1000)
    return taken


def _grow(lake: Lake, first: int, end: int) -> None:
    def write(writer: int, number: int) -> None:
        place = first + number * WRITERS + writer
        if place < end:
            lake.table(TABLE).append_actions(_files(place))

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
    return lake.table(TABLE).append_actions(_files(number)).commit.id


def _delete(lake: Lake, number: int) -> str:
    """Remove the files of one of the first commits, as a writer that read just these."""
    files = range(number * FILES_EACH, (number + 1) * FILES_EACH)
    (status,) = lake.delta.status(TABLE)
    looked = Looked(files=tuple(map(path, files)))
    one = TableCommit(
        key=KEY,
        actions="".join(map(remove, files)),
        read_version=status.latest_version,
        reads=looked,
    )
    return lake.delta.commit([one]).commit.id
