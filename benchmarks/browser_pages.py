"""How long a server takes for the pages of a large lake."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Final
from urllib.parse import urlsplit

from benchmarks.lakes import Workshop
from benchmarks.report import Cell, Findings, at_most, table

QUESTION = "Do the pages of a lake stay quick when it has very many tables, branches and commits?"

FIRST_MAX_S: Final = 1.0
"""For the first view of a page."""
PAGES: Final = (
    ("overview", ""),
    ("log", "log"),
    ("log, from its middle", "log?ref=main~{half}"),
    ("commit", "commit?ref=main"),
    ("tables", "tables"),
    ("tables, from the middle", "tables?after=schema0005.table0005000"),
    ("table", "table?key=schema0000.table0000007"),
    ("branches", "branches"),
    ("branches, the last ones", "branches?after=branch0900"),
    ("diff of two branches", "diff?base=main&to=branch0000"),
    ("what a branch changed", "diff?base=main&to=branch0000&since_fork=true"),
    ("preview of a merge", "merge?source=branch0000&into=main"),
    ("maintenance", "maintenance"),
)
"""What is looked at, and its address."""
SEARCH: Final = ("log of a table, a search of 2 s at most", "log?table=schema0000.table0000007")
"""Looks at commits until it has found a page of them: the goal is not about it."""


def ask(workshop: Workshop) -> Findings:
    tables, branches, commits = (
        workshop.size(full, quick) for full, quick in ((10_000, 2_000), (1_000, 20), (100_000, 200))
    )
    rounds = workshop.size(5, 2)
    lake = workshop.large(tables, branches, commits)
    rows: list[list[Cell]] = []
    slowest_s = 0.0
    with serve(lake) as address:
        for name, path in PAGES:
            times = [fetch(address, path.format(half=commits // 2)) for _ in range(1 + rounds)]
            first_s, size = times[0]
            slowest_s = max(slowest_s, first_s)
            rows.append([name, first_s * 1000, median(took_s for took_s, _ in times[1:]) * 1000, size])
        took_s, size = fetch(address, SEARCH[1])
        rows.append([SEARCH[0], took_s * 1000, None, size])
    title = f"Pages of a lake of {tables:,} tables, {branches:,} branches and {commits:,} commits, SQLite"
    return Findings(
        tables=(
            table(
                title,
                ["page", "first view ms", "again ms", "bytes"],
                rows,
                "By HTTP on this machine, from the request to the end of the answer, in this order. The "
                "server had just been started, and had nothing in memory.",
            ),
        ),
        goals=(at_most("the slowest first view of a page", slowest_s, FIRST_MAX_S, "s"),),
    )


@contextmanager
def serve(lake: Path) -> Iterator[str]:
    """The address of a server of its own process."""
    command = [sys.executable, "-m", "penstock.cli.main", "ui", str(lake), "--no-browser", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())["url"]
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def fetch(address: str, path: str) -> tuple[float, int]:
    """Seconds for a page, and its bytes."""
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=120)
    try:
        connection.connect()
        start = perf_counter()
        connection.request("GET", f"/ui/{path}")
        answer = connection.getresponse()
        body = answer.read()
        took_s = perf_counter() - start
    finally:
        connection.close()
    if answer.status != 200:
        raise AssertionError(f"{path} was answered with {answer.status}: {body[:500]!r}")
    return took_s, len(body)
