"""How many batches of Lance tables are committed a second, beside a directory namespace's ``__manifest``?"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from benchmarks.counting import KindCountingStore, counted_syncs
from benchmarks.lakes import Workshop
from benchmarks.lance_tables import (
    NAMESPACE,
    Directory,
    Staging,
    append_all,
    create_all,
    declare,
    held_back,
    key,
    opened,
)
from benchmarks.report import Cell, Findings, Goal, Table, at_least, at_most, table
from benchmarks.writers import Written, write_each, write_for
from penstock.formats.lance.lake.calls import CommitLance
from penstock.lake.lake import Lake
from penstock.stores import DATABASE_FILE
from penstock.stores.sqlite import SqliteStore

QUESTION = (
    "How many batches of Lance tables are committed a second, beside a directory namespace's `__manifest`?"
)

TABLES: Final = (1, 4, 16, 64)
WRITERS: Final = (1, 8)
STAGED: Final = 2000
"""Manifests that a measurement of the decision has, about."""
STAGED_MOST: Final = 300
"""Of one writer."""
GOAL_AT: Final = (4, 8)
"""So many tables and writers."""
DECISION_LEAST: Final = 20
WHOLE_LEAST: Final = 3
LARGE_MOST: Final = 25

DECIDED: Final = "Penstock"
PROMOTED: Final = "Penstock, promoted meanwhile"
MUTATED: Final = "`__manifest`, one mutation"
DECLARED: Final = "`__manifest`, a declare_table each"
WHOLE: Final = "Penstock"
ONE_BY_ONE: Final = "tables one by one, then `__manifest`"
WRITTEN: Final = "tables one by one, and nothing else"

Found = dict[tuple[str, int, int], list[Written]]
"""By way, tables and writers: what each round saw."""


class Size(NamedTuple):
    """How large one measurement is."""

    tables: int
    writers: int
    seconds: float
    batches: int
    """Of each writer, where they have to be staged before."""


Way = Callable[[Path, Size], Written]


def ask(workshop: Workshop) -> Findings:
    seconds = 0.2 if workshop.quick else 2.0
    decisions: Found = {}
    wholes: Found = {}
    for _ in range(workshop.size(3, 1)):
        for writers in (2,) if workshop.quick else WRITERS:
            for tables in (1, 4) if workshop.quick else TABLES:
                staged = workshop.size(min(STAGED_MOST, max(5, STAGED // (tables * writers))), 3)
                size = Size(tables, writers, seconds, staged)
                for ways, found in ((DECISIONS, decisions), (WHOLES, wholes)):
                    for name, way in ways.items():
                        with workshop.place() as place:
                            found.setdefault((name, tables, writers), []).append(way(place, size))
    counted = [(tables, *_counted(workshop, tables)) for tables in ((4,) if workshop.quick else TABLES)]
    return Findings(
        tables=(_decision_table(decisions), _whole_table(wholes), _counted_table(counted)),
        goals=() if workshop.quick else tuple(_goals(decisions, wholes)),
    )


# -- the decision, with manifests staged -------------------------------------------------------------------


def _decided(place: Path, size: Size) -> Written:
    return _commit_staged(place, size, held_back)


def _promoted(place: Path, size: Size) -> Written:
    return _commit_staged(place, size, lambda _: nullcontext())


def _commit_staged(
    place: Path, size: Size, during: Callable[[Lake], AbstractContextManager[None]]
) -> Written:
    with opened(place / "lake") as lake:
        places, staging = declare(lake, size.writers, size.tables), Staging(place)
        batches = [
            staging.batches(places, writer, size.tables, 1, size.batches + 1)
            for writer in range(size.writers)
        ]
        for mine in batches:  # what is loaded with the first one of a table
            lake.do(CommitLance(operations=mine.pop(0)))
        os.sync()  # what was staged is not the commits' to wait for
        with during(lake):
            return write_each(
                size.batches,
                size.writers,
                lambda writer, number: lake.do(CommitLance(operations=batches[writer][number])),
            )


def _mutated(place: Path, size: Size) -> Written:
    directory = Directory(place)
    return write_for(
        size.seconds, size.writers, lambda writer, number: directory.mutate(writer, number, size.tables)
    )


def _declared(place: Path, size: Size) -> Written:
    directory = Directory(place)

    def write(writer: int, number: int) -> None:
        for one in range(size.tables):
            directory.declare(f"w{writer}n{number}t{one}")

    return write_for(size.seconds, size.writers, write)


DECISIONS: Final[Mapping[str, Way]] = {
    DECIDED: _decided,
    PROMOTED: _promoted,
    MUTATED: _mutated,
    DECLARED: _declared,
}


# -- from rows to tables that everybody reads --------------------------------------------------------------


def _whole(place: Path, size: Size) -> Written:
    with opened(place / "lake", wait_s=60.0) as lake:
        lake.branch().create_namespace(NAMESPACE)
        namespaces = [lake.lance() for _ in range(size.writers)]
        names = [[key(writer, number) for number in range(size.tables)] for writer in range(size.writers)]
        for mine in names:
            create_all(lake, mine)
        return write_for(
            size.seconds, size.writers, lambda writer, _: append_all(namespaces[writer], names[writer])
        )


def _one_by_one(place: Path, size: Size) -> Written:
    directory = Directory(place)
    for writer in range(size.writers):
        directory.append_all(writer, -1, size.tables, "create")
    return write_for(
        size.seconds, size.writers, lambda writer, number: directory.append_all(writer, number, size.tables)
    )


def _written(place: Path, size: Size) -> Written:
    directory = Directory(place)
    for writer in range(size.writers):
        directory.write_all(writer, size.tables, "create")
    return write_for(
        size.seconds, size.writers, lambda writer, _: directory.write_all(writer, size.tables, "append")
    )


WHOLES: Final[Mapping[str, Way]] = {WHOLE: _whole, ONE_BY_ONE: _one_by_one, WRITTEN: _written}


# -- work, counted -----------------------------------------------------------------------------------------


class Work(NamedTuple):
    """What one batch comes to."""

    requests: int
    """Of the lake's store."""
    store_bytes: int
    files: int
    """That are new, in table storage."""
    file_bytes: int
    syncs: int
    """That a process waits for, without the store's own."""


def _counted(workshop: Workshop, tables: int) -> tuple[Work, Work, Work]:
    """A batch whose manifests are staged, with its promotion; one from its rows on; and a mutation."""
    with workshop.place() as place:
        (place / "lake").mkdir()
        with opened(place / "lake"):
            pass
        store = KindCountingStore(SqliteStore(str(place / "lake" / DATABASE_FILE)))
        with opened(store, wait_s=60.0) as lake:
            places = declare(lake, 1, tables)
            first, second = Staging(place).batches(places, 0, tables, 1, 2)
            lake.do(CommitLance(operations=first))
            staged = _work(place, store, lambda: lake.do(CommitLance(operations=second)))
    with workshop.place() as place:
        (place / "lake").mkdir()
        with opened(place / "lake"):
            pass
        store = KindCountingStore(SqliteStore(str(place / "lake" / DATABASE_FILE)))
        with opened(store, wait_s=60.0) as lake:
            lake.branch().create_namespace(NAMESPACE)
            names = [key(0, number) for number in range(tables)]
            create_all(lake, names)
            whole = _work(place, store, lambda: append_all(lake.lance(), names))
    with workshop.place() as place:
        directory = Directory(place)
        directory.append_all(0, 0, tables, "create")
        mutated = _work(place, None, lambda: directory.append_all(0, 1, tables))
    return staged, whole, mutated


def _work(place: Path, store: KindCountingStore | None, do: Callable[[], object]) -> Work:
    before = _files(place)
    if store is not None:
        store.reset()
    with counted_syncs() as syncs:
        do()
    new = {path: size for path, size in _files(place).items() if path not in before}
    counts = None if store is None else store.counts
    return Work(
        0 if counts is None else counts.requests,
        0 if counts is None else counts.bytes_written,
        len(new),
        sum(new.values()),
        len(syncs),
    )


def _files(place: Path) -> dict[Path, int]:
    found = {}
    for path in place.rglob("*"):
        if path.is_file() and not path.name.startswith(DATABASE_FILE):
            found[path] = path.stat().st_size
    return found


# -- what came of it ---------------------------------------------------------------------------------------


def _times(ours: list[Written], others: list[Written]) -> float:
    return median(a.rate / b.rate if b.rate else 0.0 for a, b in zip(ours, others, strict=True))


def _faster(found: Found, tables: int, writers: int) -> str:
    """Which of the two ways of a directory namespace is the faster one."""
    return max((MUTATED, DECLARED), key=lambda way: median(one.rate for one in found[way, tables, writers]))


def _rows(found: Found, other: Callable[[int, int], str]) -> Iterator[list[Cell]]:
    for (way, tables, writers), runs in sorted(found.items(), key=lambda one: (one[0][2], one[0][1])):
        batches = median(one.rate for one in runs)
        yield [
            way,
            writers,
            tables,
            batches,
            batches * tables,
            _times(runs, found[other(tables, writers), tables, writers]),
            median(one.latency_ms(0.5) for one in runs),
            median(one.latency_ms(0.99) for one in runs),
        ]


_COLUMNS: Final = ("way", "writers", "tables", "batches/s", "tables/s", "times Lance", "p50 ms", "p99 ms")


def _decision_table(found: Found) -> Table:
    return table(
        "The decision alone: the next version of all tables of a batch, whose manifests are staged",
        _COLUMNS,
        _rows(found, lambda tables, writers: _faster(found, tables, writers)),
        "Medians of rounds in which every way had its turn. Writers are threads of one process, each with "
        "tables of its own. Penstock reads and checks every manifest, and waits for the disk. No commit "
        "waits for its promotion (`promote_wait_s=0`): of 'Penstock' nothing is promoted while the clock "
        "runs; 'promoted meanwhile' has threads of the same process put manifests where Lance looks, and "
        "what is left when the clock stops is not counted. A mutation inserts a row for each "
        "table into a namespace's `__manifest`, and is tried again when somebody was faster; declare_table "
        "is what the "
        "namespace itself does to it, one table at a time and without a batch. Neither waits for the disk. "
        "'Times Lance' is against the faster one of the two.",
    )


def _whole_table(found: Found) -> Table:
    return table(
        "All of it: 100 rows appended to each table, until every reader of Lance finds the new versions",
        _COLUMNS,
        _rows(found, lambda _tables, _writers: ONE_BY_ONE),
        "Lance's own writer writes the rows and the manifests on both sides. Penstock commits a batch and "
        "answers once it is promoted: all that was decided, and every manifest, is on the disk then. The "
        "other way is what programs do today: every table commits by itself, where all readers see it at "
        "once, and a mutation of `__manifest` follows; none of it is waited for until it is on the disk. "
        "The last way leaves the mutation out, so that nothing ties the tables together: what Lance's "
        "writer alone takes, and what no commit of any kind can go below.",
    )


def _counted_table(counted: list[tuple[int, Work, Work, Work]]) -> Table:
    names = ("Penstock, manifests staged", "Penstock, all of it", ONE_BY_ONE)
    rows: list[list[Cell]] = [
        [name, tables, work.requests, work.store_bytes, work.files, work.file_bytes, work.syncs]
        for tables, *works in counted
        for name, work in zip(names, works, strict=True)
    ]
    return table(
        "What one batch comes to, with its promotion",
        ("way", "tables", "store requests", "bytes stored", "new files", "their bytes", "fsync"),
        rows,
        "Requests and bytes of the lake's store, which waits for the disk once more for each swap; files "
        "that are left in table storage; files and folders that Penstock waits for there. Lance waits for "
        "none.",
    )


def _goals(decisions: Found, wholes: Found) -> Iterator[Goal]:
    tables, writers = GOAL_AT
    where = f"{tables} tables and {writers} writers"
    other = _faster(decisions, tables, writers)
    times = _times(decisions[DECIDED, tables, writers], decisions[other, tables, writers])
    yield at_least(f"decisions a second with {where}, of `__manifest`", times, DECISION_LEAST, "times")
    times = _times(wholes[WHOLE, tables, writers], wholes[ONE_BY_ONE, tables, writers])
    yield at_least(f"batches a second with {where}, end to end", times, WHOLE_LEAST, "times")
    small, large = TABLES[0], TABLES[-1]
    times = _times(decisions[DECIDED, small, 1], decisions[DECIDED, large, 1])
    yield at_most(f"time of a batch of {large} tables, of one of {small}", times, LARGE_MOST, "times")
