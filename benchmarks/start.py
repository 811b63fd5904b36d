"""How long it takes until a program that uses Penstock can work."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from time import perf_counter

from benchmarks.lakes import Workshop, key
from benchmarks.report import Cell, Findings, Goal, Table, at_most, table

QUESTION = "How long does it take to import Penstock, and to open a lake and read from it?"

IMPORT_MAX_MS = 150
OPEN_MAX_MS = 100

IMPORT = "import time; s = time.perf_counter(); import penstock; print(time.perf_counter() - s)"
OPEN = """
import sys, time, penstock
place, name = sys.argv[1:]
for _ in range(2):
    start = time.perf_counter()
    with penstock.open(place, create=False) as lake:
        assert lake.at().get(name) is not None
        print(time.perf_counter() - start)
"""


def ask(workshop: Workshop) -> Findings:
    tables = workshop.size(100_000, 1000)
    lake = str(workshop.keys(tables))
    commands = {
        "python -c pass": ["-c", "pass"],
        "import penstock": ["-c", IMPORT],
        "open and first read": ["-c", OPEN, lake, str(key(tables // 2))],
    }
    if find_spec("penstock.cli.main") is not None:
        commands["penstock --help"] = ["-c", "from penstock.cli.main import main; main()", "--help"]
    whole: dict[str, list[float]] = {name: [] for name in commands}
    inside: dict[str, list[list[float]]] = {name: [] for name in commands}
    environment = _environment(workshop.directory / "compiled")
    for number in range(1 + workshop.size(21, 1)):
        for name, arguments in commands.items():
            took, printed = _run(arguments, environment)
            if number > 0:  # the first time compiles, and brings the files into memory
                whole[name].append(took)
                inside[name].append(printed)
    imported = median(printed[0] for printed in inside["import penstock"])
    first, second = (median(printed[turn] for printed in inside["open and first read"]) for turn in (0, 1))
    return Findings(
        tables=(_processes(whole), _inside(tables, imported, first, second)),
        goals=_goals(tables, imported, first),
    )


def _environment(compiled: Path) -> dict[str, str]:
    """This process's, but for compiled modules: as on a machine that has started Penstock before."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": str(compiled.absolute())}


def _run(arguments: list[str], environment: dict[str, str]) -> tuple[float, list[float]]:
    """How long a fresh interpreter took in all, and the times that it printed."""
    command = [sys.executable, *arguments]
    start = perf_counter()
    ran = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    took = perf_counter() - start
    printed = [] if "--help" in arguments else [float(line) for line in ran.stdout.split()]
    return took, printed


def _processes(whole: dict[str, list[float]]) -> Table:
    nothing = median(whole["python -c pass"])
    rows: list[list[Cell]] = [
        [name, median(times) * 1000, (median(times) - nothing) * 1000] for name, times in whole.items()
    ]
    note = "From start to end of a fresh interpreter, modules compiled before; medians of runs in turns."
    return table("Whole processes", ["process", "ms", "ms more than nothing"], rows, note)


def _inside(tables: int, imported: float, first: float, second: float) -> Table:
    rows: list[list[Cell]] = [
        ["import penstock", imported * 1000],
        ["open and first read, in a fresh process", first * 1000],
        ["open and first read, again in the same process", second * 1000],
    ]
    note = "The first opening in a process also imports what only an open lake needs."
    return table(f"Inside a process, {tables:,} keys", ["what", "ms"], rows, note)


def _goals(tables: int, imported: float, first: float) -> tuple[Goal, ...]:
    return (
        at_most("import penstock", imported * 1000, IMPORT_MAX_MS, "ms"),
        at_most(f"open and first read in a fresh process, {tables:,} keys", first * 1000, OPEN_MAX_MS, "ms"),
    )
