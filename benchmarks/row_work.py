"""What does it cost to work on rows in a process apart from the server?"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any, Final

import lance
import msgspec
import pyarrow as pa  # type: ignore[import-untyped]

import penstock
from benchmarks.lakes import Workshop
from benchmarks.report import Cell, Findings, Table, at_most, table
from penstock.formats.lance.rest.request_handler import ROW_WORK, LanceRequest
from penstock.lake.lake import Lake
from penstock.lake.worker_calls import CallAnswers
from penstock.processes.pool import ProcessPool
from penstock.server.app import ROW_WORK_IMPORTS
from penstock.server.limits import Limits

QUESTION = "What does it cost to work on rows in a process apart from the server?"

ROWS: Final = (3, 100_000)
MORE_MAX_MS: Final = 10
"""What a row worker may add to a small request."""

Way = Callable[[], int]
"""Does something, and says how many bytes came of it."""


def ask(workshop: Workshop) -> Findings:
    rounds = workshop.size(101, 3)
    sizes = tuple(min(rows, workshop.size(rows, 1000)) for rows in ROWS)
    pool = ProcessPool(Limits().processes, ROW_WORK_IMPORTS)
    began_s = perf_counter()
    try:
        with penstock.open(str(workshop.directory / "rows"), create=True) as lake:
            lake.branch().create_namespace("ws")
            for rows in sizes:
                _write(lake, rows)
            ways = {
                (what, rows): _ways(lake, pool, what, rows)
                for what in ("count_rows", "query")
                for rows in sizes
            }
            began_s = perf_counter()
            next(iter(ways.values()))[1]()
            started_s = perf_counter() - began_s
            took = {one: _measured(pair, rounds) for one, pair in ways.items()}
    finally:
        pool.close()
    more_ms = (took["count_rows", sizes[0]][1] - took["count_rows", sizes[0]][0]) * 1000
    return Findings(
        tables=(_table(took, started_s),),
        goals=(
            at_most(f"what a row worker adds to count_rows of {sizes[0]} rows", more_ms, MORE_MAX_MS, "ms"),
        ),
    )


def _write(lake: Lake, rows: int) -> None:
    data = pa.table({"id": pa.array(range(rows), pa.int64()), "text": [f"row {one}" for one in range(rows)]})
    lance.write_dataset(data, namespace_client=lake.lance(), table_id=["ws", f"t{rows}"])


def _ways(lake: Lake, pool: ProcessPool, what: str, rows: int) -> tuple[Way, Way]:
    """The same in this process, and by a row worker."""
    name = {"count_rows": "count_table_rows", "query": "query_table"}[what]
    body: dict[str, Any] = {"predicate": "id >= 0"} if what == "count_rows" else {"vector": {}, "k": rows}
    request = {"id": ["ws", f"t{rows}"], **body}
    asked = LanceRequest(
        operation=name,
        base="",
        path={"id": f"ws$t{rows}"},
        given={},
        delimiter="$",
        key=None,
        who="bench",
        page_max=None,
        body_max_bytes=2**30,
    )
    head, sent = msgspec.json.encode(asked), msgspec.json.encode(body)

    def here() -> int:
        answer = getattr(Lake(lake.catalogue, "bench").lance(), name)(request)
        return len(answer.data) if what == "query" else len(str(answer.count))

    def apart() -> int:
        output = pool.run_function(ROW_WORK, head, sent, answer=CallAnswers(lake.catalogue))
        size = output.size_bytes
        if output.file is not None:
            with output.file as file:
                while file.read(256 * 1024):
                    pass
        return size

    return here, apart


def _measured(pair: tuple[Way, Way], rounds: int) -> tuple[float, float, int]:
    """Seconds of each, in turns, and bytes of the answer."""
    times: tuple[list[float], list[float]] = ([], [])
    size = 0
    for number in range(1 + rounds):
        for way, kept in zip(pair, times, strict=True):
            start = perf_counter()
            size = way()
            if number:
                kept.append(perf_counter() - start)
    return median(times[0]), median(times[1]), size


def _table(took: dict[tuple[str, int], tuple[float, float, int]], started_s: float) -> Table:
    rows: list[list[Cell]] = [
        [what, rows, size, here * 1000, apart * 1000, (apart - here) * 1000, apart / here]
        for (what, rows), (here, apart, size) in took.items()
    ]
    return table(
        "Lance's operations on one table",
        ["operation", "rows", "bytes", "in this process ms", "row worker ms", "more ms", "ratio"],
        rows,
        "A row worker that is warm, and asks this process for what it needs of the lake. The first request "
        f"also waited for it to start: {started_s:.1f} s here.",
    )
