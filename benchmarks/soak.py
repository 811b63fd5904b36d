"""Whether a server that many clients use for a long time stays as it was."""

from __future__ import annotations

import http.client
import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import linear_regression, median
from threading import Thread
from time import monotonic, sleep
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pyarrow as pa  # type: ignore[import-untyped]

import penstock
from benchmarks.lakes import Workshop
from benchmarks.report import Cell, Findings, at_most, table
from penstock import IcebergTable
from penstock.errors import CommitConflict, PenstockError

QUESTION = "Do memory, descriptors and threads of a server stay as they are while 32 clients use all of it?"

CLIENTS = 32
PROCESSES = 4
"""The clients are threads of so many programs: one alone would wait for itself."""
SECONDS = 1200
SAMPLE_S = 2.0
GROWTH_MAX = 1.1
"""The last quarter beside the second one; the first is for caches to fill and libraries to be loaded."""

CLIENT = "from benchmarks.soak import run_clients; run_clients()"


class Sample(NamedTuple):
    """What a server and the processes that it started hold at one moment."""

    at_s: float
    memory_mb: float
    descriptors: int
    threads: int
    processes: int


def ask(workshop: Workshop) -> Findings:
    seconds, clients = workshop.size(SECONDS, 6), workshop.size(CLIENTS, 4)
    with workshop.place() as place:
        tokens = _make_lake(place / "lake", clients)
        with _served(place / "lake") as (pid, url):
            programs = [_start(url, seconds, tokens[at::PROCESSES]) for at in range(min(PROCESSES, clients))]
            samples = list(_watch(pid, programs))
            done, failed = _sum_up(programs)
    quarters = _quarters(samples)
    settled = [one for part in quarters[1:] for one in part]
    return Findings(
        tables=(
            table(
                f"A server in use by {clients} clients for {seconds / 60:g} minutes, by quarters",
                ("quarter", "memory MB", "most MB", "descriptors", "threads", "processes"),
                [
                    [
                        number,
                        median(one.memory_mb for one in part),
                        max(one.memory_mb for one in part),
                        max(one.descriptors for one in part),
                        max(one.threads for one in part),
                        max(one.processes for one in part),
                    ]
                    for number, part in enumerate(quarters, 1)
                ],
                "Of the server and all processes that it started. Each client has a token of its own.",
            ),
            table(
                "The first and the last sample, and the line through those of the last three quarters",
                ("of", "first", "last", "slope a minute"),
                [
                    _growth("memory MB", samples, settled, lambda one: one.memory_mb),
                    _growth("descriptors", samples, settled, lambda one: one.descriptors),
                    _growth("threads", samples, settled, lambda one: one.threads),
                ],
                "The first sample is taken before the clients have done anything.",
            ),
            table(
                "What the clients did meanwhile",
                ("call", "done", "failed"),
                [[name, done[name], failed[name]] for name in sorted(done | failed)],
                "A conflict with another client is no failure: it is counted as done.",
            ),
        ),
        goals=(
            _flat("memory", [[one.memory_mb for one in part] for part in quarters], "times as much"),
            _flat("descriptors", [[one.descriptors for one in part] for part in quarters], "times as many"),
            _flat("threads", [[one.threads for one in part] for part in quarters], "times as many"),
            at_most("calls that failed", sum(failed.values()), 0),
        ),
    )


def _growth(
    what: str, samples: Sequence[Sample], settled: Sequence[Sample], of: Callable[[Sample], float]
) -> list[Cell]:
    minutes = [one.at_s / 60 for one in settled]
    return [what, of(samples[0]), of(samples[-1]), slope(minutes, [of(one) for one in settled])]


def slope(times: Sequence[float], values: Sequence[float]) -> float:
    """By how much values grow with time: of the straight line that is nearest to them."""
    if len(set(times)) < 2:
        return 0.0
    return linear_regression(times, values).slope


def _flat(what: str, quarters: Sequence[Sequence[float]], unit: str) -> Any:
    growth = median(quarters[-1]) / median(quarters[1])
    return at_most(f"{what} in the last quarter beside the second", growth, GROWTH_MAX, unit)


def _quarters(samples: Sequence[Sample]) -> list[list[Sample]]:
    size = max(len(samples) // 4, 1)
    return [list(samples[at * size : (at + 1) * size]) or [samples[-1]] for at in range(4)]


# --- the server -----------------------------------------------------------------------------------------


def _make_lake(place: Path, clients: int) -> list[str]:
    with penstock.init(place) as lake:
        lake.add_root("s3://bucket")
        rows = pa.table({"id": list(range(100)), "day": ["mon"] * 100})
        lake.create_table("soak.events", data=rows)
        lake.table("soak.vectors").write(rows, format="lance")
        lake.finish_background()
        return [lake.create_token(f"client{number}", "write") for number in range(clients)]


@contextmanager
def _served(place: Path) -> Iterator[tuple[int, str]]:
    command = [sys.executable, "-m", "penstock.cli.main", "serve", "--json", "--lake", str(place)]
    command += ["--port", "0", "--log-level", "error"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.pid, json.loads(process.stdout.readline())["url"]
        finally:
            process.terminate()


def _watch(pid: int, programs: Sequence[subprocess.Popen[str]]) -> Iterator[Sample]:
    start = monotonic()
    while any(one.poll() is None for one in programs):
        family = [pid, *_descendants(pid)]
        yield Sample(
            monotonic() - start,
            sum(map(_memory_mb, family)),
            sum(_count(f"/proc/{one}/fd") for one in family),
            sum(_count(f"/proc/{one}/task") for one in family),
            len(family),
        )
        sleep(SAMPLE_S)


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(one) for one in task.read_text().split()]
        except OSError:
            continue
        for child in children:
            found += [child, *_descendants(child)]
    return found


def _memory_mb(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS")), 0.0)


def _count(directory: str) -> int:
    try:
        return sum(1 for _ in Path(directory).iterdir())
    except OSError:
        return 0


# --- the clients ----------------------------------------------------------------------------------------


def _start(url: str, seconds: float, tokens: Sequence[str]) -> subprocess.Popen[str]:
    program = subprocess.Popen(
        [sys.executable, "-c", CLIENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert program.stdin is not None
    json.dump({"url": url, "seconds": seconds, "tokens": list(tokens)}, program.stdin)
    program.stdin.close()
    return program


def _sum_up(programs: Sequence[subprocess.Popen[str]]) -> tuple[Counter[str], Counter[str]]:
    done: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    for program in programs:
        assert program.stdout is not None
        with program.stdout as output:
            counted = json.load(output)
        done.update(counted["done"])
        failed.update(counted["failed"])
    return done, failed


def run_clients() -> None:
    """What one program of clients does: reads what it is told, prints what was done."""
    told = json.load(sys.stdin)
    done: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    clients = [Client(told["url"], token) for token in told["tokens"]]
    ends_s = monotonic() + told["seconds"]
    threads = [Thread(target=_run, args=(client, ends_s, done, failed)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    json.dump({"done": done, "failed": failed}, sys.stdout)


def _run(client: Client, ends_s: float, done: Counter[str], failed: Counter[str]) -> None:
    try:
        while monotonic() < ends_s:
            call = client.choose()
            try:
                call()
            except CommitConflict:
                done[call.__name__] += 1
            except (PenstockError, OSError, AssertionError) as problem:
                failed[call.__name__] += 1
                print(f"{call.__name__}: {problem!r}", file=sys.stderr, flush=True)
            else:
                done[call.__name__] += 1
    finally:
        client.close()


class Client:
    """One user of the server, with a token and connections of its own."""

    def __init__(self, url: str, token: str) -> None:
        self._rows = pa.table({"id": [1, 2, 3], "day": ["tue"] * 3})
        self._lake = penstock.open(url, token=token)
        self._token, self._random = token, random.Random(token)
        self._name = f"c{self._random.randrange(10**9)}"
        split = urlsplit(url)
        self._http = http.client.HTTPConnection(split.hostname or "", split.port or 0, timeout=60)
        self._calls: tuple[tuple[int, Callable[[], None]], ...] = (
            (30, self.commit),
            (30, self.read),
            (10, self.log),
            (5, self.branch),
            (5, self.append),
            (3, self.transaction),
            (10, self.nessie),
            (5, self.lance),
            (2, self.refusal),
        )

    def choose(self) -> Callable[[], None]:
        weights = [weight for weight, _ in self._calls]
        return self._random.choices([call for _, call in self._calls], weights)[0]

    def close(self) -> None:
        self._http.close()
        self._lake.close()

    def commit(self) -> None:
        number = self._random.randrange(100)
        place = f"s3://bucket/{self._name}/{self._random.randrange(10**9)}.json"
        self._lake.branch().put(f"{self._name}.t{number}", IcebergTable(metadata_location=place))

    def read(self) -> None:
        self._lake.at().get("soak.events")

    def log(self) -> None:
        for number, _ in enumerate(self._lake.branch().log()):
            if number == 50:
                break

    def branch(self) -> None:
        branch = self._lake.branch(f"{self._name}-{self._random.randrange(10**9)}").create()
        branch.put(f"{self._name}.b", IcebergTable(metadata_location="s3://bucket/b.json"))
        self._lake.merge(branch.name, "main")
        branch.delete()

    def append(self) -> None:
        self._lake.table("soak.events").append(self._rows)

    def transaction(self) -> None:
        with self._lake.transaction() as tx:
            tx.table("soak.events").append(self._rows)
            tx.table("soak.vectors").append(self._rows)

    def nessie(self) -> None:
        self._ask("GET", "/api/v2/trees/main/history?max-records=20")

    def lance(self) -> None:
        self._ask("POST", "/lance/v1/table/soak$vectors/count_rows", {"predicate": "id > 1"})

    def refusal(self) -> None:
        self._ask("GET", "/api/v2/trees/no-such-branch", status=404)

    def _ask(self, method: str, path: str, body: object = None, status: int = 200) -> None:
        try:
            found, text = self._send(method, path, body)
        except (OSError, http.client.HTTPException):
            self._http.close()  # the server closes connections that were idle: once more by a new one
            found, text = self._send(method, path, body)
        assert found == status, f"{found} {text[:300]!r}"

    def _send(self, method: str, path: str, body: object) -> tuple[int, bytes]:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        self._http.request(method, path, None if body is None else json.dumps(body), headers)
        answer = self._http.getresponse()
        return answer.status, answer.read()
