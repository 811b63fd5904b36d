"""What a caller who floods a server with searches does to everybody else."""

from __future__ import annotations

import asyncio
import http.client
import json
import multiprocessing
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, perf_counter, sleep
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlencode, urlsplit

import penstock
from benchmarks.lakes import Workshop
from benchmarks.report import Cell, Findings, Goal, at_most, table
from penstock.lake.calls import ChangeRoots

if TYPE_CHECKING:
    from multiprocessing.queues import Queue
    from multiprocessing.synchronize import Event

QUESTION = "What does one caller who floods a server with searches do to commits and probes of others?"

COMMITS = 20_000
SECONDS = 15.0
HEALTH_MOST_MS = 100
COMMIT_MOST_MS = 1000

_API = "/api/penstock/v1"
_LOG = f"{_API}/log?limit=100&text=nowhere"
_FILTER = "/api/v2/trees/main/history?" + urlencode(
    {"filter": "operations.exists(o, o.key == 'x')", "fetch": "ALL"}
)
_LONG = "the log is searched"


class Flood(NamedTuple):
    """So many connections that ask the same all the time, and what the server is told."""

    what: str
    connections: int
    path: str = _LOG
    options: tuple[str, ...] = ()


FLOODS = (
    Flood("nobody else", 0),
    Flood(f"{_LONG}, 10 connections", 10),
    Flood(f"{_LONG}, 140 connections", 140),
    Flood(f"{_LONG}, 140 connections, two workers", 140, options=("--workers", "2")),
    Flood(f"{_LONG}, 140 connections, without turns", 140, options=("--long-reads-max", "128")),
    Flood("a history is filtered by Nessie's API, 20 connections", 20, _FILTER),
)


class Served(NamedTuple):
    """How long some requests took, and how many were answered otherwise than by 200."""

    times_ms: list[float]
    others: int

    def share_ms(self, share: float) -> float:
        return sorted(self.times_ms)[min(int(len(self.times_ms) * share), len(self.times_ms) - 1)]


class ServedLake(NamedTuple):
    """A server with a lake, and tokens for who floods it, who writes and who looks."""

    url: str
    flooder: str
    writer: str
    reader: str


def ask(workshop: Workshop) -> Findings:
    lake = workshop.history(workshop.size(COMMITS, 200))
    rows: list[list[Cell]] = []
    found: dict[tuple[str, str], Served] = {}
    for flood in FLOODS:
        with workshop.copy(lake) as place, _served(place, flood.options) as site:
            answers, served = _measure(site, flood, workshop.size(int(SECONDS), 1))
        for what, one in served.items():
            found[flood.what, what] = one
            told = ", ".join(f"{code}: {count:,}" for code, count in sorted(answers.items()))
            times = one.share_ms(0.5), one.share_ms(0.99), max(one.times_ms)
            rows.append([flood.what, what, len(one.times_ms), *times, one.others, told])
    columns = ("meanwhile", "request", "answered", "p50 ms", "p99 ms", "slowest ms", "not 200", "flood")
    note = (
        "One token searches, others commit and probe, one request after the other each. Clients and server "
        "share the cores. Without turns, a server lets all searches of a caller compute at once."
    )
    title = (
        f"Requests of others while one token searches the history of {workshop.size(COMMITS, 200):,} commits"
    )
    return Findings(tables=(table(title, columns, rows, note),), goals=tuple(_goals(found)))


def _goals(found: dict[tuple[str, str], Served]) -> Iterator[Goal]:
    for flood in FLOODS:
        if flood.connections and "--long-reads-max" not in flood.options:
            health, commits = found[flood.what, "/healthz"], found[flood.what, "a commit"]
            yield at_most(f"99 % of /healthz, {flood.what}", health.share_ms(0.99), HEALTH_MOST_MS, "ms")
            yield at_most(f"slowest commit, {flood.what}", max(commits.times_ms), COMMIT_MOST_MS, "ms")


@contextmanager
def _served(place: Path, options: tuple[str, ...]) -> Iterator[ServedLake]:
    with penstock.open(place) as lake:
        lake.catalogue.do(ChangeRoots(add=("s3://lake/warehouse",)))
        flooder = lake.create_token("flooder", "read:main:schema0000.*")
        writer, reader = lake.create_token("writer", "write"), lake.create_token("reader", "read")
    command = [
        sys.executable,
        "-m",
        "penstock.cli.main",
        "serve",
        "--json",
        "--lake",
        str(place),
        "--port",
        "0",
    ]
    command += ["--log-level", "error", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield ServedLake(json.loads(process.stdout.readline())["url"], flooder, writer, reader)
        finally:
            process.terminate()


def _measure(site: ServedLake, flood: Flood, seconds: float) -> tuple[Counter[str], dict[str, Served]]:
    """What the flood was answered, and how others were served meanwhile."""
    fresh = multiprocessing.get_context(
        "spawn"
    )  # clients of a flood must not slow down those who are measured
    stop, queue = fresh.Event(), fresh.Queue()
    flooding = fresh.Process(target=_flood, args=(site, flood, stop, queue))
    if flood.connections:
        flooding.start()
        queue.get()  # it has begun
        sleep(min(2.0, seconds))  # until it is at its height
    ends_s = monotonic() + seconds
    requests: dict[str, tuple[str, str, str, Callable[[int], object], float]] = {
        "a commit": ("POST", f"{_API}/commits", site.writer, _commit, 0.1),
        "a read": ("GET", f"{_API}/entries?limit=10", site.reader, _nothing, 0.1),
        "/healthz": ("GET", "/healthz", "", _nothing, 0.05),
        "/readyz": ("GET", "/readyz", "", _nothing, 0.2),
        "/metrics": ("GET", "/metrics", site.reader, _nothing, 0.2),
    }
    served = {what: Served([], 0) for what in requests}

    def serve(what: str) -> None:
        method, path, token, body, pause_s = requests[what]
        times, others = list[float](), 0
        while monotonic() < ends_s:
            began_s = perf_counter()
            status = _ask(site.url, method, path, token, body(len(times)))
            times.append((perf_counter() - began_s) * 1000)
            others += status != 200
            sleep(pause_s)
        served[what] = Served(times, others)

    threads = [threading.Thread(target=serve, args=(what,)) for what in requests]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    answers = Counter[str]()
    if flood.connections:
        stop.set()
        answers = queue.get()
        flooding.join()
    return answers, served


def _nothing(_: int) -> None:
    """A request without a body."""


def _commit(number: int) -> object:
    content = {"type": "ICEBERG_TABLE", "metadata_location": f"s3://lake/warehouse/{perf_counter()}-{number}"}
    return {
        "branch": "main",
        "operations": [{"operation": "put", "key": "schema0000.table0000001", "content": content}],
    }


def _ask(url: str, method: str, path: str, token: str, body: object) -> int:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    headers = {"content-type": "application/json", **({"authorization": f"Bearer {token}"} if token else {})}
    try:
        connection.request(method, path, json.dumps(body) if body is not None else None, headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status
    except OSError:
        return 0
    finally:
        connection.close()


def _flood(site: ServedLake, flood: Flood, stop: Event, queue: Queue[Counter[str]]) -> None:
    """Ask the same by many connections at once until it is enough; a process of its own."""
    queue.put(asyncio.run(_ask_all(site, flood, stop, queue)))


async def _ask_all(site: ServedLake, flood: Flood, stop: Event, queue: Queue[Counter[str]]) -> Counter[str]:
    parts, answers = urlsplit(site.url), Counter[str]()
    sent = f"GET {flood.path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {site.flooder}\r\n"

    async def ask_again_and_again() -> None:
        while True:
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
            writer.write(f"{sent}connection: close\r\n\r\n".encode())
            status = (await reader.read())[9:12].decode()
            writer.close()
            answers[status] += 1
            if status == "429":  # as it is told to
                await asyncio.sleep(0.2)

    tasks = [asyncio.create_task(ask_again_and_again()) for _ in range(flood.connections)]
    queue.put(answers)
    while not stop.is_set():  # noqa: ASYNC110 - another process sets it
        await asyncio.sleep(0.1)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return answers
