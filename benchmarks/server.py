"""How many commits and reads a second a server takes over HTTP, beside Nessie's own server."""

from __future__ import annotations

import http.client
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple, TypeAlias
from urllib.parse import urlsplit

import msgspec

from benchmarks.lakes import Workshop
from benchmarks.report import Cell, Findings, Goal, at_least, at_most, table
from tests.servers import nessie, postgresql
from tests.servers.process import Missing

QUESTION = "How many commits and reads a second does a server take over HTTP, and how does Nessie's compare?"

CLIENTS = (1, 16, 64)
RATE_LEAST = 1500
P99_MOST_MS = 100
READS_LEAST = 3000

LOAD = Path(__file__).with_name("load.lua")

Started: TypeAlias = Callable[[Path], AbstractContextManager[str]]
"""Gives the URL of a server with an empty lake in a directory, and stops it at the end."""


class Contender(NamedTuple):
    """A server, and what is asked of it."""

    name: str
    started: Started
    commits: str
    reads: str


class Loaded(msgspec.Struct, frozen=True):
    """What one run of wrk came to."""

    seconds: float
    done: int
    conflicts: int
    refused: int
    odd_status: int
    """The highest status among those refused."""
    broken: int
    p50_ms: float
    p99_ms: float
    max_ms: float

    @property
    def rate(self) -> float:
        return self.done / self.seconds


@contextmanager
def _penstock(directory: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "penstock.cli.main", "serve", "--dev", "--json"]
    command += ["--lake", str(directory / "lake"), "--port", "0", "--log-level", "error"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["url"]
        finally:
            process.terminate()


@contextmanager
def _nessie_in_memory(_: Path) -> Iterator[str]:
    with nessie.started(fast=True) as server:
        yield server.url


@contextmanager
def _nessie_on_postgresql(_: Path) -> Iterator[str]:
    with (
        postgresql.started() as database,
        postgresql.fresh_database(database.url) as url,
        nessie.started(fast=True, database=url) as server,
    ):
        yield server.url


PENSTOCK = Contender("Penstock, SQLite", _penstock, "native-own", "native-read")
AS_NESSIE = Contender("Penstock, SQLite, Nessie's API", _penstock, "nessie-own", "nessie-read")
CONTENDERS = (
    PENSTOCK,
    AS_NESSIE,
    Contender("Nessie, in memory", _nessie_in_memory, "nessie-own", "nessie-read"),
    Contender("Nessie, PostgreSQL", _nessie_on_postgresql, "nessie-own", "nessie-read"),
)


def ask(workshop: Workshop) -> Findings:
    if shutil.which("wrk") is None:
        raise SystemExit("this benchmark needs wrk, which is not installed: run `make interop` as root")
    commits: dict[tuple[str, int], list[Loaded]] = {}
    reads: dict[str, list[Loaded]] = {}
    one_table: list[Loaded] = []
    for _ in range(workshop.size(3, 1)):
        for contender in CONTENDERS[: workshop.size(len(CONTENDERS), 2)]:
            try:
                _measure(workshop, contender, commits, reads, one_table)
            except Missing as missing:
                print(f"{contender.name}: {missing}", file=sys.stderr)
    return Findings(
        tables=(
            table(
                "One-key commits to one branch over HTTP, each client to its own table",
                ("server", "clients", "commits/s", "times Nessie", "p50 ms", "p99 ms", "conflicts", "errors"),
                _commit_rows(commits),
                "Medians of rounds in which every server had its turn; the load is made by wrk on the same "
                "machine. Each commit names the commit that its client read. Penstock on SQLite waits for "
                "the disk; times Nessie compares with Nessie in memory, which does not.",
            ),
            table(
                "All 64 clients commit to one table, each after a look at the head when it was in conflict",
                ("server", "commits/s", "conflicts/s", "p99 ms", "errors"),
                [
                    [
                        PENSTOCK.name,
                        median(one.rate for one in one_table),
                        median(one.conflicts / one.seconds for one in one_table),
                        median(one.p99_ms for one in one_table),
                        max(one.refused + one.broken for one in one_table),
                    ]
                ],
            ),
            table(
                "Reads of a table's content, 64 clients, one worker",
                ("server", "reads/s", "p50 ms", "p99 ms", "errors"),
                [
                    [name, *_figures(runs), max(one.refused + one.broken for one in runs)]
                    for name, runs in reads.items()
                ],
            ),
        ),
        goals=tuple(_goals(commits, reads, one_table)),
    )


def _measure(
    workshop: Workshop,
    contender: Contender,
    commits: dict[tuple[str, int], list[Loaded]],
    reads: dict[str, list[Loaded]],
    one_table: list[Loaded],
) -> None:
    """One round of everything that is asked of a server."""
    seconds = 1 if workshop.quick else 6
    with workshop.place() as place, contender.started(place) as url:
        _load(url, contender.commits, 64, seconds, "warm")
        for clients in CLIENTS[-workshop.size(len(CLIENTS), 1) :]:
            done = _load(url, contender.commits, clients, seconds, f"of{clients}n")
            commits.setdefault((contender.name, clients), []).append(done)
        reads.setdefault(contender.name, []).append(_load(url, contender.reads, 64, seconds, "warm"))
        if contender is PENSTOCK:
            one_table.append(_load(url, "native-one", 64, seconds, "one"))


def _load(url: str, load: str, clients: int, seconds: int, tables: str) -> Loaded:
    # wrk's threads are its clients here: each has one connection.
    command = ["wrk", "-t", str(clients), "-c", str(clients), "-d", f"{seconds}s", "-s", str(LOAD), url]
    ended = subprocess.run(
        [*command, "--", load, _head(url), tables], capture_output=True, text=True, check=True
    )
    return msgspec.json.decode(ended.stdout.splitlines()[-1], type=Loaded)


def _head(url: str) -> str:
    """The head of main, by Nessie's API, which all of them have."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=10)
    try:
        connection.request("GET", "/api/v2/trees/main")
        found: str = json.loads(connection.getresponse().read())["reference"]["hash"]
        return found
    finally:
        connection.close()


def _figures(runs: list[Loaded]) -> tuple[float, float, float]:
    """The rate, and how long half of the requests, and all but one in a hundred, took at most."""
    return (
        median(one.rate for one in runs),
        median(one.p50_ms for one in runs),
        median(one.p99_ms for one in runs),
    )


def _commit_rows(commits: dict[tuple[str, int], list[Loaded]]) -> Iterator[list[Cell]]:
    for (name, clients), runs in commits.items():
        nessies = commits.get(("Nessie, in memory", clients))
        times = median(a.rate / b.rate for a, b in zip(runs, nessies, strict=True)) if nessies else None
        rate, p50, p99 = _figures(runs)
        conflicts, errors = max(one.conflicts for one in runs), max(one.refused + one.broken for one in runs)
        yield [name, clients, rate, times, p50, p99, conflicts, errors]


def _goals(
    commits: dict[tuple[str, int], list[Loaded]], reads: dict[str, list[Loaded]], one_table: list[Loaded]
) -> Iterator[Goal]:
    rate, _, p99 = _figures(commits[PENSTOCK.name, 64])
    yield at_least("durable commits of 64 clients over HTTP", rate, RATE_LEAST, "/s")
    yield at_most("99 % of them took at most", p99, P99_MOST_MS, "ms")
    yield at_least(
        "reads of a table's content, one worker", _figures(reads[PENSTOCK.name])[0], READS_LEAST, "/s"
    )
    errors = max(one.refused + one.broken for one in one_table)
    yield at_most("errors beside conflicts, all clients on one table", errors, 0)
