"""How long it takes to load a Delta table with a long log or very many files, and how much memory."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Final, NamedTuple

from benchmarks.delta_tables import add, opened, write_log
from benchmarks.lakes import Workshop
from benchmarks.report import Cell, Findings, Goal, at_most, table
from penstock import Lake

QUESTION = "How long does it take to load a Delta table, and how much memory, beside deltalake?"

TIMES_MOST: Final = 1
PEAK_MOST_MB: Final = 1024
AFTER_CHECKPOINT: Final = 10
WITH: Final = "from a checkpoint"
WITHOUT: Final = "without a checkpoint"
OURS: Final = "Penstock"
THEIRS: Final = "deltalake"
AS_VALUES: Final = "deltalake, all that is known of a file"

PROGRAMS: Final = {
    OURS: """
import penstock
with penstock.open({lake!r}, create=False, catch_up=False) as lake:
    count = sum(1 for _ in lake.table({name!r}).snapshot().files())
""",
    THEIRS: """
from deltalake import DeltaTable
count = DeltaTable({location!r}).get_add_actions().num_rows
""",
}
"""What is run in a process of its own; each goes through all files of the table."""
MEASURED: Final = """
import json, re, time
from pathlib import Path
import pyarrow.parquet
def peak_mb():
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text()).group(1)) / 1024
before = peak_mb()
start = time.perf_counter()
{program}
took = time.perf_counter() - start
print(json.dumps([count, took, peak_mb(), before]))
"""
"""Linux tells the peak; that of ``getrusage`` would begin with the size of the process that started this."""


class Logs(NamedTuple):
    """A table that a lake owns, with and without a checkpoint, otherwise the same."""

    directory: Path
    names: dict[str, str]
    locations: dict[str, Path]
    files: int


def ask(workshop: Workshop) -> Findings:
    commits = workshop.size(10_000, 50)
    with workshop.place() as place:
        long = _logs(place, commits, 1)
        times = _times(long, workshop.size(5, 1))
    commits_of_large, adds_of_each = workshop.size(30, 3), workshop.size(10_000, 25)
    with workshop.place() as place:
        large = _logs(place, commits_of_large, adds_of_each)
        times_of_large = _times(large, workshop.size(5, 1))
    commits_of_many, adds_each = workshop.size(100, 4), workshop.size(10_000, 25)
    with workshop.place() as place:
        many = _logs(place, commits_of_many, adds_each)
        peaks = {one: _peaks(many, one) for one in (WITH, WITHOUT)}
    return Findings(
        tables=(
            table(
                f"Loading a table of {long.files:,} files from a log of {commits:,} commits",
                ("log", "reader", "ms to know the table", "ms with all its files", "times deltalake"),
                _time_rows(times),
                "Medians of rounds in turns. A table is known when its schema, version and properties are; "
                "then its files are listed: by deltalake as paths or with all that is known of them, by "
                f"Penstock always with all. The checkpoint has {AFTER_CHECKPOINT} commits after it. Penstock "
                "opens the lake anew each time, so that it knows nothing of the table.",
            ),
            table(
                f"Loading a table of {large.files:,} files from a log of {commits_of_large:,} commits",
                ("log", "reader", "ms to know the table", "ms with all its files", "times deltalake"),
                _time_rows(times_of_large),
                "As above.",
            ),
            table(
                f"A process that loads a table of {many.files:,} files, {commits_of_many:,} commits",
                ("log", "reader", "s", "peak MB", "MB before"),
                _peak_rows(peaks),
                "Each in a process of its own, which goes through all files. Penstock gives them one by one, "
                "deltalake as one Arrow table.",
            ),
        ),
        goals=tuple(_goals(times, times_of_large, large.files, peaks)),
    )


# -- logs ----------------------------------------------------------------------------------------------------


def _logs(directory: Path, commits: int, adds_each: int) -> Logs:
    """The same log twice, adopted by a lake, one with a checkpoint shortly before its end."""
    names = {WITH: "checkpointed", WITHOUT: "plain"}
    locations = {which: directory / "lake" / "warehouse" / name for which, name in names.items()}
    files = commits * adds_each
    with opened(directory) as lake:
        write_log(locations[WITH], commits, adds_each)
        shutil.copytree(locations[WITH], locations[WITHOUT])
        for which, name in names.items():
            lake.delta.adopt(str(locations[which]), name)
            if which == WITH:
                lake.delta.publish(name)
                lake.delta.checkpoint(name)
            for number in range(files, files + AFTER_CHECKPOINT):
                lake.table(name).append_actions(add(number))
            lake.delta.publish(name)
    for which, location in locations.items():
        assert any((location / "_delta_log").glob("*.checkpoint*")) == (which == WITH)
    return Logs(directory, names, locations, files + AFTER_CHECKPOINT)


# -- how long ------------------------------------------------------------------------------------------------


class Time(NamedTuple):
    known_ms: float
    files_ms: float


def _times(logs: Logs, rounds: int) -> dict[tuple[str, str], list[Time]]:
    found: dict[tuple[str, str], list[Time]] = {}
    for _ in range(rounds):
        for which in (WITH, WITHOUT):
            for reader, load in READERS.items():
                with opened(logs.directory) as lake:
                    one = _timed(load(lake, logs, which), logs.files)
                found.setdefault((which, reader), []).append(one)
    return found


def _ours(lake: Lake, logs: Logs, which: str) -> Callable[[], Callable[[], int]]:
    def known() -> Callable[[], int]:
        snapshot = lake.table(logs.names[which]).snapshot()
        assert snapshot.schema.fields
        return lambda: sum(1 for _ in snapshot.files())

    return known


def _theirs(_: Lake, logs: Logs, which: str) -> Callable[[], Callable[[], int]]:
    from deltalake import DeltaTable

    def known() -> Callable[[], int]:
        one = DeltaTable(logs.locations[which])
        assert one.schema().fields
        return lambda: len(one.file_uris())

    return known


def _theirs_as_values(_: Lake, logs: Logs, which: str) -> Callable[[], Callable[[], int]]:
    import pyarrow as pa  # type: ignore[import-untyped]
    from deltalake import DeltaTable

    def known() -> Callable[[], int]:
        one = DeltaTable(logs.locations[which])
        assert one.schema().fields
        return lambda: len(pa.table(one.get_add_actions()).to_pylist())

    return known


READERS: Final = {OURS: _ours, THEIRS: _theirs, AS_VALUES: _theirs_as_values}


def _timed(known: Callable[[], Callable[[], int]], files: int) -> Time:
    start = perf_counter()
    count = known()
    known_s = perf_counter() - start
    assert count() == files
    return Time(known_s * 1000, (perf_counter() - start) * 1000)


# -- how much memory -----------------------------------------------------------------------------------------


class Peak(NamedTuple):
    seconds: float
    peak_mb: float
    before_mb: float
    """With Python and Arrow, before anything of either reader is there."""


def _peaks(logs: Logs, which: str) -> dict[str, Peak]:
    return {reader: _peak(program, logs, which) for reader, program in PROGRAMS.items()}


def _peak(program: str, logs: Logs, which: str) -> Peak:
    lake, location = str(logs.directory / "lake"), str(logs.locations[which])
    filled = program.format(lake=lake, name=logs.names[which], location=location)
    source = MEASURED.format(program=filled)
    ended = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    count, *figures = json.loads(ended.stdout)
    assert count == logs.files
    return Peak(*figures)


# -- what came of it -----------------------------------------------------------------------------------------


def _time_rows(times: dict[tuple[str, str], list[Time]]) -> Iterator[list[Cell]]:
    for (which, reader), runs in times.items():
        known = median(one.known_ms for one in runs)
        files = median(one.files_ms for one in runs)
        yield [which, reader, known, files, _ratio(times, which, reader)]


def _ratio(times: dict[tuple[str, str], list[Time]], which: str, reader: str) -> float:
    pairs = zip(times[which, reader], times[which, THEIRS], strict=True)
    return median(one.files_ms / other.files_ms for one, other in pairs)


def _ratio_to_know(times: dict[tuple[str, str], list[Time]], which: str) -> float:
    pairs = zip(times[which, OURS], times[which, THEIRS], strict=True)
    return median(one.known_ms / other.known_ms for one, other in pairs)


def _peak_rows(peaks: dict[str, dict[str, Peak]]) -> Iterator[list[Cell]]:
    for which, found in peaks.items():
        for reader, peak in found.items():
            yield [which, reader, *peak]


def _goals(
    times: dict[tuple[str, str], list[Time]],
    times_of_large: dict[tuple[str, str], list[Time]],
    large: int,
    peaks: dict[str, dict[str, Peak]],
) -> Iterator[Goal]:
    yield at_most(f"time to load {WITH} : deltalake's", _ratio(times, WITH, OURS), TIMES_MOST, "times")
    for which in (WITH, WITHOUT):
        asked = f"a table of {large:,} files {which} : deltalake's"
        yield at_most(f"time to open {asked}", _ratio_to_know(times_of_large, which), TIMES_MOST, "times")
        ratio = _ratio(times_of_large, which, OURS)
        yield at_most(f"time to open and list {asked}", ratio, TIMES_MOST, "times")
    for which in (WITH, WITHOUT):
        yield at_most(f"peak memory, {which}", peaks[which][OURS].peak_mb, PEAK_MOST_MB, "MB")
