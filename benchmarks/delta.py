"""How many commits a second one Delta table takes from many writers, and whether its log keeps up."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Final, NamedTuple

import msgspec

import penstock
from benchmarks.delta_tables import INTERVAL, SCHEMA, TABLE, add, create, opened
from benchmarks.lakes import Workshop
from benchmarks.report import Cell, Findings, Goal, at_least, at_most, table
from benchmarks.server import PENSTOCK, Loaded
from benchmarks.writers import Written, write_each, write_for

QUESTION = "How many commits a second does one Delta table take from many writers, and does its log keep up?"

WRITERS: Final = (1, 16, 64)
RATE_LEAST: Final = 1000
PUBLISHED_LEAST: Final = 300
CHECKPOINT_INTERVAL: Final = 100
RATIFIED: Final = "Penstock, ratified"
PUBLISHED: Final = "Penstock, ratified and published"
OVER_HTTP: Final = "Penstock over HTTP"
DELTALAKE: Final = "deltalake, put-if-absent"

LOAD = Path(__file__).with_name("delta_load.lua")


class Appended(NamedTuple):
    """What writers saw in one run."""

    rate: float
    p50_ms: float
    p99_ms: float
    in_log: float
    """Versions a second that reached the table's log while they wrote."""
    refused: float = 0.0
    """Of all that were tried to the end."""


class Drained(NamedTuple):
    """A backlog written into the log, and the same files written plainly, in files a second."""

    published: float
    serial: float


def ask(workshop: Workshop) -> Findings:
    if shutil.which("wrk") is None:
        raise SystemExit("this benchmark needs wrk, which is not installed: run `make interop` as root")
    seconds = 0.3 if workshop.quick else 5.0
    found: dict[tuple[str, int], list[Appended]] = {}
    drained: list[Drained] = []
    for _ in range(workshop.size(3, 1)):
        for writers in (4,) if workshop.quick else WRITERS:
            for name, way in WAYS.items():
                with workshop.place() as place:
                    found.setdefault((name, writers), []).append(way(place, writers, seconds))
        with workshop.place() as place:
            drained.append(_drain(place, workshop.size(2000, 64)))
    return Findings(
        tables=(
            table(
                "Appends of one file to one table",
                (
                    "way",
                    "writers",
                    "commits/s",
                    "times deltalake",
                    "p50 ms",
                    "p99 ms",
                    "into the log/s",
                    "refused %",
                ),
                _rows(found),
                "Medians of rounds in which every way had its turn. Each commit adds one file, and nothing "
                "that was read stands behind it. Penstock on SQLite waits for the disk; 'published' waits "
                "until the version is in the table's log too, a server for at most a second. deltalake "
                "writes versions into the log itself, does not wait for the disk, and tries up to 15 times "
                "when somebody was faster; its latencies are also those of commits that it gave up. 'Into "
                "the log' is counted there, until the last writer was done. Both write a checkpoint every "
                f"{CHECKPOINT_INTERVAL} versions.",
            ),
            table(
                f"A backlog of {workshop.size(2000, 64):,} ratified versions, written into the table's log",
                ("way", "files/s", "times serial"),
                [
                    ["Penstock", median(one.published for one in drained), _times_serial(drained)],
                    ["one after the other: write, fsync", median(one.serial for one in drained), 1.0],
                ],
                "The storage was away while the versions were ratified. The same files are then written once "
                "more, plainly.",
            ),
        ),
        goals=tuple(_goals(found, drained)),
    )


# -- ways to append ------------------------------------------------------------------------------------------


def _ratified(directory: Path, writers: int, seconds: float) -> Appended:
    return _embedded(directory, writers, seconds, wait_s=0.0)


def _published(directory: Path, writers: int, seconds: float) -> Appended:
    return _embedded(directory, writers, seconds, wait_s=60.0)


def _embedded(directory: Path, writers: int, seconds: float, *, wait_s: float) -> Appended:
    with opened(directory, wait_s=wait_s) as lake:
        log = create(lake, CHECKPOINT_INTERVAL) / "_delta_log"
        one = lake.table(TABLE)
        one.append_actions(add(0))
        start, before = perf_counter(), _versions(log)
        done = write_for(
            seconds, writers, lambda writer, n: one.append_actions(add(1 + n * writers + writer))
        )
        return _appended(done, (_versions(log) - before) / (perf_counter() - start))


def _over_http(directory: Path, writers: int, seconds: float) -> Appended:
    line = json.dumps(add(0).replace("part-00000000", "part-NUMBER"))[1:-1]
    with PENSTOCK.started(directory) as url:
        with penstock.open(url) as lake:
            log = create(lake, CHECKPOINT_INTERVAL) / "_delta_log"
        command = ["wrk", "-t", str(writers), "-c", str(writers), "-d", f"{max(1, round(seconds))}s"]
        command += ["-s", str(LOAD), url, "--", TABLE, line]
        start, before = perf_counter(), _versions(log)
        ended = subprocess.run(command, capture_output=True, text=True, check=True)
        in_log = (_versions(log) - before) / (perf_counter() - start)
    done = msgspec.json.decode(ended.stdout.splitlines()[-1], type=Loaded)
    others = done.conflicts + done.refused + done.broken
    refused = others / max(1, others + done.done)
    return Appended(done.rate, done.p50_ms, done.p99_ms, in_log, refused)


def _deltalake(directory: Path, writers: int, seconds: float) -> Appended:
    from deltalake import DeltaTable, Schema
    from deltalake.exceptions import CommitFailedError
    from deltalake.transaction import AddAction

    schema = Schema.from_json(SCHEMA)
    DeltaTable.create(directory / TABLE, schema, configuration={INTERVAL: str(CHECKPOINT_INTERVAL)})
    tables = [DeltaTable(directory / TABLE) for _ in range(writers)]
    landed: list[float] = []

    def write(writer: int, number: int) -> None:
        one = json.loads(add(1 + number * writers + writer))["add"]
        action = AddAction(one["path"], one["size"], {}, one["modificationTime"], True, one["stats"])
        with suppress(CommitFailedError):
            tables[writer].create_write_transaction([action], "append", schema)
            landed.append(perf_counter())

    start, before = perf_counter(), _versions(directory / TABLE / "_delta_log")
    done = write_for(seconds, writers, write)
    in_log = (_versions(directory / TABLE / "_delta_log") - before) / (perf_counter() - start)
    rate = sum(end <= start + seconds for end in landed) / seconds
    return _appended(done, in_log)._replace(rate=rate, refused=1 - len(landed) / len(done.latencies_s))


WAYS: Final[dict[str, Callable[[Path, int, float], Appended]]] = {
    RATIFIED: _ratified,
    PUBLISHED: _published,
    OVER_HTTP: _over_http,
    DELTALAKE: _deltalake,
}


def _appended(done: Written, in_log: float) -> Appended:
    return Appended(done.rate, done.latency_ms(0.5), done.latency_ms(0.99), in_log)


def _versions(log: Path) -> int:
    return sum(1 for _ in log.glob("*.json"))


# -- publishing ----------------------------------------------------------------------------------------------


def _drain(directory: Path, versions: int) -> Drained:
    """Ratify versions while a table's log cannot be written, have them written, then once more plainly."""
    with opened(directory) as lake:
        place = create(lake)
    log, away = place / "_delta_log", place / "away"
    log.rename(away)
    log.touch()  # a file where the log should be: whatever is written there fails
    with _quiet(), opened(directory, close_s=0.0) as lake:
        one = lake.table(TABLE)
        write_each(versions // 16, 16, lambda writer, n: one.append_actions(add(n * 16 + writer)))
    log.unlink()
    away.rename(log)
    with opened(directory) as lake:
        os.sync()  # what came before is not theirs to wait for
        start = perf_counter()
        lake.delta.publish(TABLE)
        published_s = perf_counter() - start
    files = [path.read_bytes() for path in sorted(log.glob("*.json"))[1:]]
    assert len(files) == versions
    plain = place / "plain"
    plain.mkdir()
    os.sync()
    start = perf_counter()
    for number, data in enumerate(files):
        with (plain / f"{number:020}.json").open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    return Drained(versions / published_s, versions / (perf_counter() - start))


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the warnings about storage that is away."""
    logger = logging.getLogger("penstock")
    logger.disabled = True
    try:
        yield
    finally:
        logger.disabled = False


# -- what came of it -----------------------------------------------------------------------------------------


def _rows(found: dict[tuple[str, int], list[Appended]]) -> Iterator[list[Cell]]:
    for (name, writers), runs in sorted(
        found.items(), key=lambda one: (one[0][1], list(WAYS).index(one[0][0]))
    ):
        others = found[DELTALAKE, writers]
        pairs = list(zip(runs, others, strict=True))
        times = median(a.rate / b.rate for a, b in pairs) if all(b.rate for _, b in pairs) else None
        rate, p50, p99, in_log, refused = (median(values) for values in zip(*runs, strict=True))
        yield [name, writers, rate, times, p50, p99, in_log, refused * 100]


def _times_serial(drained: list[Drained]) -> float:
    return median(one.published / one.serial for one in drained)


def _goals(found: dict[tuple[str, int], list[Appended]], drained: list[Drained]) -> Iterator[Goal]:
    most = max(writers for _, writers in found)
    for name in (RATIFIED, OVER_HTTP):
        rate = median(one.rate for one in found[name, most])
        yield at_least(f"appends of {most} writers to one table: {name}", rate, RATE_LEAST, "/s")
    refused = max(one.refused for name in (RATIFIED, PUBLISHED, OVER_HTTP) for one in found[name, most])
    yield at_most("of them refused", refused * 100, 0, "%")
    writing = median(
        one.in_log / min(PUBLISHED_LEAST, other.serial)
        for one, other in zip(found[RATIFIED, most], drained, strict=True)
    )
    draining = median(one.published / min(PUBLISHED_LEAST, one.serial) for one in drained)
    of = f"of {PUBLISHED_LEAST}/s or of the serial rate, if that is less"
    yield at_least(f"versions into the log while {most} write, {of}", writing, 1, "times")
    yield at_least(f"versions of a backlog into the log, {of}", draining, 1, "times")
