"""How long changes of rows of Delta tables take under Spark, beside Delta Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

from benchmarks.lakes import Workshop
from benchmarks.report import Cell, Findings, Goal, at_most, table
from tests.interop import installed
from tests.servers.process import Missing

QUESTION = "How long do DELETE, UPDATE and MERGE of a Delta table take under Spark, beside Delta Spark?"

ROWS: Final = 12_000_000
ROUNDS: Final = 2
STATEMENTS: Final = {"delete": "DELETE of 0.1 %", "update": "UPDATE of 1 %", "merge": "MERGE of 1 %"}
WITH: Final = "with vectors"
WITHOUT: Final = "without vectors"
TIMES_MOST: Final = {
    WITH: {"delete": 0.9, "update": 0.9, "merge": 0.9},
    WITHOUT: {"delete": 0.78, "update": 0.72, "merge": 0.91},
}
PROGRAM: Final = Path(__file__).parent / "row_changes_engine.py"
SOURCE: Final = Path(__file__).parent.parent / "src"
DELTA: Final = "Delta Spark"
OURS: Final = "Penstock"
OURS_NEWEST: Final = "Penstock, newest Spark"


class Took(NamedTuple):
    """What one change took."""

    s: float
    cpu_s: float


Times = dict[tuple[str, str, str], list[Took]]
"""By table, statement and engine, round by round."""


def ask(workshop: Workshop) -> Findings:
    rows, rounds = workshop.rows or workshop.size(ROWS, 20_000), workshop.size(ROUNDS, 1)
    with workshop.place() as place:
        times = measure(place, rows, rounds)
    if DELTA not in {engine for _, _, engine in times} and not workshop.quick:
        raise SystemExit("without Delta Spark there is nothing to compare with: run `make interop`")
    return findings(times, rows)


def measure(place: Path, rows: int, rounds: int) -> Times:
    """Every engine changes tables of its own, in turns, each of them first now and then; the first round is
    for warming up. At the end they have the same rows."""
    times: Times = {}
    with ExitStack() as stack:
        engines = {
            name: stack.enter_context(_engine(command, environment, place / str(number)))
            for number, (name, command, environment) in enumerate(_commands(place))
        }
        versions = {
            name: {one.ask("make", _named(kind), rows, kind == WITH) for kind in TIMES_MOST}.pop()
            for name, one in engines.items()
        }
        print(f"Spark: {versions}", file=sys.stderr, flush=True)
        order = list(engines)
        for number in range(rounds + 1):
            for kind in TIMES_MOST:
                for statement in STATEMENTS:
                    for name in order:
                        took = Took(*engines[name].ask(statement, _named(kind), number))
                        told = (
                            f"{number}. {statement} {kind} by {name}: {took.s:.1f} s, {took.cpu_s:.1f} CPU s"
                        )
                        print(told, file=sys.stderr, flush=True)
                        if number:
                            times.setdefault((kind, statement, name), []).append(took)
                    order = [*order[1:], order[0]]
        for kind in TIMES_MOST:
            digests = {name: one.ask("digest", _named(kind)) for name, one in engines.items()}
            assert len({json.dumps(one) for one in digests.values()}) == 1, digests
    return times


def findings(times: Times, rows: int) -> Findings:
    tables = [
        table(
            f"Changes of a Delta table of {rows:,} rows {kind}",
            ("statement", "engine", "s", "CPU s", "times Delta Spark", "CPU s of Delta Spark's"),
            list(_rows(times, kind)),
            "Medians of rounds in turns, each until the table's log has it. Of the CPU, what Spark's process "
            "and the program's use. All engines have the same rows at the end.",
        )
        for kind in TIMES_MOST
    ]
    return Findings(tables=tuple(tables), goals=tuple(_goals(times)))


def _rows(times: Times, kind: str) -> Iterator[list[Cell]]:
    for statement, what in STATEMENTS.items():
        for found, engine in ((key, key[2]) for key in times if key[:2] == (kind, statement)):
            took, theirs = times[found], times.get((kind, statement, DELTA))
            yield [
                what, engine, median(one.s for one in took), median(one.cpu_s for one in took),
                *(_ratios(took, theirs) if theirs else (None, None)),
            ]  # fmt: skip


def _ratios(ours: Sequence[Took], theirs: Sequence[Took]) -> tuple[float, float]:
    pairs = list(zip(ours, theirs, strict=True))
    return median(one.s / other.s for one, other in pairs), median(
        one.cpu_s / other.cpu_s for one, other in pairs
    )


def _goals(times: Times) -> Iterator[Goal]:
    for kind, limits in TIMES_MOST.items():
        for statement, limit in limits.items():
            theirs = times.get((kind, statement, DELTA))
            if theirs:
                ratio, _ = _ratios(times[kind, statement, OURS], theirs)
                yield at_most(f"{STATEMENTS[statement]} {kind}, of Delta Spark's time", ratio, limit)


def _named(kind: str) -> str:
    return "marked" if kind == WITH else "plain"


# -- engines -------------------------------------------------------------------------------------------------


class _Engine(NamedTuple):
    """A program that changes rows as it is asked."""

    process: subprocess.Popen[str]
    log: Path

    def ask(self, *request: object) -> Any:
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None
        assert stdout is not None
        print(json.dumps(request), file=stdin, flush=True)
        line = stdout.readline()
        if not line:
            raise RuntimeError(f"{request} ended with: {self.log.read_text()[-3000:]}")
        return json.loads(line)


def _commands(place: Path) -> Iterator[tuple[str, list[str], dict[str, str]]]:
    """The engines with the commands that start them, and what is added to their environment."""
    package = {"PYTHONPATH": f"{SOURCE}:{installed.described(place / 'package')}"}
    yield OURS_NEWEST, [sys.executable, str(PROGRAM), "penstock"], {}
    try:
        python, jars = installed.python_environment("spark") / "python", installed.java_libraries("delta")
    except Missing as missing:
        print(f"Delta Spark is left out: {missing}", file=sys.stderr)
        return
    yield OURS, [str(python), str(PROGRAM), "penstock"], package
    yield DELTA, [str(python), str(PROGRAM), "delta", str(jars)], {}


@contextmanager
def _engine(command: list[str], environment: dict[str, str], directory: Path) -> Iterator[_Engine]:
    directory.mkdir(parents=True)
    log = directory / "log"
    program, name, *rest = command[1:]
    with (
        log.open("w") as errors,
        subprocess.Popen(
            [command[0], program, name, str(directory / "work"), *rest],
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        try:
            yield _Engine(process, log)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(60)
