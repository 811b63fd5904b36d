"""What does it cost to commit what a Spark job wrote, beside Hadoop's committers?"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Final
from uuid import uuid4

import msgspec

import penstock
from benchmarks.committer_spark import Job, Took
from benchmarks.counting import KindCountingStore
from benchmarks.lakes import Workshop
from benchmarks.report import Cell, Findings, Goal, Table, at_least, at_most, table
from penstock.formats.files.files import make_folder_name
from penstock.formats.files.lake.calls import NewFile, WriteFiles
from penstock.lake.lake import Lake
from penstock.lake.opener import init_lake
from penstock.model.clock import now_us
from penstock.model.keys import Key
from penstock.stores import DATABASE_FILE
from penstock.stores.sqlite import SqliteStore
from tests.interop import installed
from tests.servers import s3
from tests.servers.process import Missing
from tests.spark.s3.counting import Asked, Counting

QUESTION = "What does it cost to commit what a Spark job wrote, beside Hadoop's committers?"

ON_S3: Final = ("v1", "v2", "magic", "ours")
ON_DISK: Final = ("v1", "v2", "manifest", "ours")
NAMES: Final = {
    "v1": "FileOutputCommitter v1",
    "v2": "FileOutputCommitter v2",
    "manifest": "manifest committer",
    "magic": "S3A magic committer",
    "ours": "Penstock",
}
KINDS: Final = ("PUT", "POST", "COPY", "DELETE", "LIST", "HEAD", "GET")
LATENCY_MS: Final = {"PUT": 30, "POST": 40, "COPY": 40, "DELETE": 15, "LIST": 60, "HEAD": 15, "GET": 15}
"""What a request takes on S3, about. A multipart upload begins and ends with a POST."""
PUT_MB_S: Final = 100
COPY_MB_S: Final = 200
SLOTS: Final = 2
"""How many tasks run at once; what the driver asks for, it asks one after the other, but for copies."""
COPIES_AT_ONCE: Final = 10
"""Of S3A, while it renames a folder."""
COMMIT_MOST_S: Final = 5.0
SIZES: Final = (10_000, 100_000, 1_000_000)
CHANGED: Final = 100
LATENCY_ROUNDS: Final = 15
LOADED_AT_ONCE: Final = 100_000
KEY: Final = Key("raw", "events")


def ask(workshop: Workshop) -> Findings:
    partitions = workshop.size(4000, 8)
    files, rows = workshop.size(100, 3), workshop.size(10_000_000, 3000)
    small = Job(committer="", format="csv", partitions=partitions, files=8, rows=10 * partitions, place="")
    large = Job(committer="", format="parquet", files=files, rows=rows, place="")
    orc = msgspec.structs.replace(small, format="orc")
    with workshop.place() as place, _bucket() as (bucket, requests), _spark(place, bucket, requests) as spark:
        for committer in ON_S3:  # what is loaded when it is first used
            spark.run(msgspec.structs.replace(small, committer=committer, partitions=2, rows=20), "warm")
        cases = [(one, [spark.run_counted(one, name) for name in ON_S3]) for one in (small, large)]
        on_disk = [
            (name, spark.run(msgspec.structs.replace(orc, committer=name), "disk")) for name in ON_DISK
        ]
    latencies = [_latency(workshop, workshop.size(size, size // 100)) for size in SIZES]
    tables = [_s3_table(job, ran) for job, ran in cases]
    tables += [_disk_table(orc, on_disk), _latency_table(latencies)]
    return Findings(tables=tuple(tables), goals=tuple(_goals(cases, latencies)))


# -- on S3 -------------------------------------------------------------------------------------------------


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """A job that ran on S3, and what it asked for there."""

    committer: str
    took: Took
    tasks: tuple[Asked, ...]
    """While tasks ran."""
    driver: tuple[Asked, ...]
    """When all were done."""
    sizes: Mapping[str, int]
    """Of what was written, by name."""

    @property
    def modelled_s(self) -> float:
        """What the requests would take on S3."""
        copies = sum(self._seconds(one) for one in self.driver if one.kind == "COPY")
        others = sum(self._seconds(one) for one in self.driver if one.kind != "COPY")
        return sum(map(self._seconds, self.tasks)) / SLOTS + others + copies / COPIES_AT_ONCE

    @property
    def data_s(self) -> float:
        """What of it is the data itself, which every committer writes once."""
        puts = [one for one in self.tasks if one.kind == "PUT" and one.size]
        return sum(map(self._seconds, puts)) / SLOTS

    def _seconds(self, one: Asked) -> float:
        seconds = LATENCY_MS[one.kind] / 1000
        if one.kind == "PUT":
            seconds += one.size / (PUT_MB_S * 1e6)
        elif one.kind == "COPY":
            seconds += self.sizes.get(one.source.lstrip("/"), 0) / (COPY_MB_S * 1e6)
        return seconds


class _Spark:
    """Spark in a process of its own, which runs one job after the other."""

    def __init__(self, process: subprocess.Popen[str], place: Path, bucket: s3.S3Place, requests: Counting):
        self._process, self._place, self._bucket, self._requests = process, place, bucket, requests

    def run(self, job: Job, where: str) -> Took:
        """Run a job: ``where`` says whether in the bucket or on this disk."""
        name = f"{where}{uuid4().hex}"
        place = str(self._place / name)
        if job.committer == "ours":
            place = f"{where}.t{name}"
        elif where != "disk":
            place = f"s3a://{self._bucket.bucket}/{self._bucket.prefix}/{name}"
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        wanted = msgspec.structs.replace(job, place=place)
        self._process.stdin.write(msgspec.json.encode(wanted).decode() + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "Spark ended"
        return msgspec.json.decode(line, type=Took)

    def run_counted(self, job: Job, committer: str) -> Ran:
        self._requests.clear()
        took = self.run(msgspec.structs.replace(job, committer=committer), "counted")
        asked = self._requests.asked
        begins_s = took.ended_s - took.commit_s
        sizes: dict[str, int] = {}
        for one in asked:
            if one.kind == "PUT":
                sizes[one.name.lstrip("/")] = one.size
            elif one.kind == "COPY":
                sizes[one.name.lstrip("/")] = sizes.get(one.source.lstrip("/"), 0)
        return Ran(
            committer=committer,
            took=took,
            tasks=tuple(one for one in asked if one.at_s < begins_s),
            driver=tuple(one for one in asked if one.at_s >= begins_s),
            sizes=sizes,
        )


@contextmanager
def _bucket() -> Iterator[tuple[s3.S3Place, Counting]]:
    with s3.seaweedfs() as server, s3.fresh_place(server.bucket) as bucket:
        requests = Counting(server.port)
        with requests:
            yield bucket, requests


@contextmanager
def _spark(place: Path, bucket: s3.S3Place, requests: Counting) -> Iterator[_Spark]:
    try:
        jars = ",".join(map(str, sorted(installed.java_libraries("s3a").glob("*.jar"))))
    except Missing as missing:
        raise SystemExit(f"this benchmark needs S3 for Spark: {missing}") from None
    endpoint = f"http://127.0.0.1:{requests.port}"
    environment = {
        **os.environ,
        **bucket.environment,
        "AWS_REGION": bucket.region,
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true",
    }
    address = str(place / "lake")
    init_lake(address, warehouse=f"s3://{bucket.bucket}/{bucket.prefix}/warehouse").close()
    with (place / "spark-log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.committer_spark", address, endpoint, jars],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env={**environment, "SPARK_LOCAL_IP": "127.0.0.1"},
            text=True,
        )
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n", (place / "spark-log").read_text(errors="replace")
            yield _Spark(process, place, bucket, requests)
            assert process.stdin is not None
            process.stdin.close()
            process.wait(60)
        finally:
            process.kill()
            process.wait()


def _s3_table(job: Job, ran: Sequence[Ran]) -> Table:
    what = f"{job.partitions:,} partitions" if job.partitions else f"{job.files} files"
    ours = next(one for one in ran if one.committer == "ours")
    size = sum(one.size for one in ours.tasks if one.kind == "PUT")
    rows: list[tuple[Cell, ...]] = [
        (
            NAMES[one.committer],
            one.took.wall_s,
            one.took.commit_s,
            one.took.tasks_commit_s,
            *(sum(each.kind == kind for each in (*one.tasks, *one.driver)) for kind in KINDS),
            one.modelled_s,
            (one.modelled_s - one.data_s) / max(ours.modelled_s - ours.data_s, 1e-9),
        )
        for one in ran
    ]
    columns = ("committer", "job s", "job commit s", "task commits s", *KINDS, "S3 s", "committing, of ours")
    return table(
        f"{job.format}, {what}, {size / 1e6:,.0f} MB, on a local S3 server",
        columns,
        rows,
        "S3 s is a model of what these requests take on S3: see benchmarks/README.md. The last column leaves"
        " out what the data itself takes, which each committer writes once.",
    )


def _disk_table(job: Job, ran: Sequence[tuple[str, Took]]) -> Table:
    rows = [(NAMES[name], took.wall_s, took.commit_s, took.tasks_commit_s) for name, took in ran]
    return table(
        f"{job.format}, {job.partitions:,} partitions, on a local disk",
        ("committer", "job s", "job commit s", "task commits s"),
        rows,
        "Spark lets the manifest committer run for ORC. Penstock's files are in the bucket here too, and its"
        " commit is durable; the others wait for no disk.",
    )


# -- in a large table --------------------------------------------------------------------------------------


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """What changes of a hundred files take in a table of some size."""

    files: int
    commit_ms: float
    merge_ms: float
    nodes_read: int
    nodes_written: int


def _latency(workshop: Workshop, files: int) -> Latency:
    with workshop.place() as place:
        (place / "lake").mkdir()
        counted = KindCountingStore(SqliteStore(str(place / "lake" / DATABASE_FILE)))
        with penstock.init(place / "lake"):
            pass
        with penstock.open(counted) as lake:
            for begun in range(0, files, LOADED_AT_ONCE):
                _write(lake, range(begun, min(begun + LOADED_AT_ONCE, files)))
            commits, merges, read, written = [], [], 0, 0
            for number in range(LATENCY_ROUNDS):
                counted.reset()
                commits.append(_timed_write(lake, number, None))
                read, written = counted.nodes_read, counted.nodes_written
                lake.branch(f"b{number}").create()
                _timed_write(lake, number + LATENCY_ROUNDS, f"b{number}")
                _timed_write(lake, number + 2 * LATENCY_ROUNDS, None)
                begun_s = perf_counter()
                lake.merge(f"b{number}")
                merges.append(perf_counter() - begun_s)
    return Latency(
        files=files,
        commit_ms=1000 * median(commits),
        merge_ms=1000 * median(merges),
        nodes_read=read,
        nodes_written=written,
    )


def _timed_write(lake: Lake, number: int, branch: str | None) -> float:
    begun_s = perf_counter()
    _write(lake, range(CHANGED), f"day=2026-11-{1 + number % 28:02}/hour={number:03}/", branch)
    return perf_counter() - begun_s


def _write(lake: Lake, numbers: range, folder: str = "", branch: str | None = None) -> None:
    attempt = uuid4()
    new = tuple(
        NewFile(
            path=f"{folder or f'day={one // 1000:05}/'}part-{one % 1000:05}-{attempt}-c000.snappy.parquet",
            size=1000,
            modified_us=one,
        )
        for one in numbers
    )
    where = make_folder_name(lake.id, attempt, now_us())
    lake.do(WriteFiles(key=KEY, branch=branch, folder=where, added=new))


def _latency_table(found: Sequence[Latency]) -> Table:
    return table(
        f"{CHANGED} files more, in a table of many (SQLite, durable)",
        ("files", "commit ms", "merge ms", "nodes read", "nodes written"),
        [(f"{one.files:,}", one.commit_ms, one.merge_ms, one.nodes_read, one.nodes_written) for one in found],
        "Medians. A merge brings a branch that has them onto one that has got others.",
    )


def _goals(cases: Sequence[tuple[Job, Sequence[Ran]]], latencies: Sequence[Latency]) -> Iterator[Goal]:
    for job, ran in cases:
        by_name = {one.committer: one for one in ran}
        what = f"{job.partitions:,} partitions" if job.partitions else f"{job.files} large files"
        if job.partitions:
            yield at_most(f"{what}: the job's commit", by_name["ours"].took.commit_s, COMMIT_MOST_S, "s")
            yield at_most(f"{what}: calls of the lake", by_name["ours"].took.calls, 10)
        for name, least in (("v1", 3), ("v2", 2)):
            ratio = by_name[name].modelled_s / by_name["ours"].modelled_s
            yield at_least(f"{what}: modelled S3 seconds, {name} of ours", ratio, least)
    first, last = latencies[0], latencies[-1]
    yield at_most(
        f"commit in {last.files:,} files, of in {first.files:,}", last.commit_ms / first.commit_ms, 2
    )
    yield at_most(f"merge in {last.files:,} files, of in {first.files:,}", last.merge_ms / first.merge_ms, 2)
