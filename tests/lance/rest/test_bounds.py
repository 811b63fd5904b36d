"""What one request may take of a server: memory, time, and what is left when its work is ended."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import lance
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from penstock.errors import CommitVetoed
from penstock.formats.lance.lake.calls import CommitLance, ListLanceVersions
from penstock.formats.lance.rest.api import LANCE
from penstock.formats.lance.rest.codec import READ_HERE_MAX_BYTES
from penstock.kernel.reachable import Progress, show_no_progress
from penstock.lake.calls import Call
from penstock.lake.catalogue import Catalogue
from penstock.lake.lake import Lake
from penstock.lake.opener import open_lake
from penstock.server.access import OpenGate
from tests.lance.rest.talking import STREAM, Talk, some_rows
from tests.processes.ends import Ending
from tests.server.running import Program, local, program, shared_pool

R = TypeVar("R")

MEMORY_MAX_BYTES = 384 * 2**20
GROWTH_MAX_BYTES = 128 * 2**20
"""What a server may need for a request whose work needs gigabytes: far less than that."""

ATTACKS: dict[str, tuple[str, dict[str, Any]]] = {
    "text of a filter": ("count_rows", {"predicate": "length(repeat('a', 1000000000)) > 1"}),
    "list of a filter": ("count_rows", {"predicate": "array_length(generate_series(1, 100000000)) > 1"}),
    "text of each row": (
        "query",
        {"vector": {}, "k": 1000, "columns": {"column_aliases": {"y": "repeat(text, 40000000)"}}},
    ),
}
QUICK = "text of a filter"
"""The one that every run tries."""


# -- a server with small limits ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """A server that gives work on rows little memory, with a table of rows."""
    folder = tmp_path_factory.mktemp("small")
    limits = ("--row-memory-max-bytes", str(MEMORY_MAX_BYTES), "--body-max-bytes", "2000000")
    with program(folder, *limits, "--row-workers", "1") as server:
        talk = Talk(server, "/lance")
        assert talk("/namespace/ws/create", {}).status == 200
        assert talk("/table/ws$t/create", some_rows(*range(64))).status == 200
        yield server


def peak_bytes(server: Program) -> int:
    """The most memory that a process ever had."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def worker_of(server: Program) -> int:
    """The process that works on the rows of a server's requests."""
    found = Path(f"/proc/{server.process.pid}/task").glob("*/children")
    children = (int(pid) for one in found for pid in one.read_text().split())
    (pid,) = (pid for pid in children if b"penstock.processes" in Path(f"/proc/{pid}/cmdline").read_bytes())
    return pid


@pytest.mark.parametrize(
    "attack", [one if one == QUICK else pytest.param(one, marks=pytest.mark.verify) for one in ATTACKS]
)
def test_work_that_needs_too_much_memory_is_refused_and_the_server_goes_on(
    small: Program, attack: str
) -> None:
    talk, before = Talk(small, "/lance"), peak_bytes(small)
    path, body = ATTACKS[attack]
    said = talk(f"/table/ws$t/{path}", body)
    assert (said.status, said.code, said.body["detail"]) == (422, 13, "work_too_large")
    assert f"more than {MEMORY_MAX_BYTES:,} bytes of memory" in said.error
    assert "(--row-memory-max-bytes)" in said.error
    assert peak_bytes(small) - before < GROWTH_MAX_BYTES
    assert talk("/table/ws$t/count_rows", {}).body == 64


def test_rows_that_are_packed_small_are_counted_before_they_are_unpacked(small: Program) -> None:
    talk, before = Talk(small, "/lance"), peak_bytes(small)
    body = packed(pa.table({"x": pa.nulls(8_000_000, pa.int64()).fill_null(0)}))
    assert len(body) < 100_000
    said = talk("/table/ws$packed/create", body, content_type=STREAM)
    assert (said.status, said.body["detail"]) == (413, "too_large")
    assert "64,000,000 bytes uncompressed" in said.error
    assert "--body-max-bytes)" in said.error
    assert peak_bytes(small) - before < GROWTH_MAX_BYTES
    assert talk("/table/ws$packed/exists", {}).status == 404
    assert talk("/table/ws$packed/create", packed(some_rows(1, 2)), content_type=STREAM).status == 200
    assert talk("/table/ws$packed/count_rows", {}).body == 2


@pytest.mark.verify
@pytest.mark.parametrize(
    "field", ["entries", *(pytest.param(one, marks=pytest.mark.verify) for one in ("context", "unknown"))]
)
def test_a_body_that_would_take_much_memory_is_read_by_a_row_worker(small: Program, field: str) -> None:
    """Lance's models say of each of its parts what is wrong, which took 500 times the memory of the body."""
    talk, before = Talk(small, "/lance"), peak_bytes(small)
    body, larger = (b'{"%s":[%s[]]}' % (field.encode(), b"[]," * count) for count in (450_000, 600_000))
    said = talk("/table/version/batch-create", body)
    assert (said.status, said.code) in {(400, 13), (422, 13)}
    assert talk("/table/version/batch-create", larger).status == 413
    assert peak_bytes(small) - before < GROWTH_MAX_BYTES
    assert talk("/table/ws$t/count_rows", {}).body == 64


def test_a_request_that_is_read_by_a_row_worker_is_answered_as_any_other(small: Program) -> None:
    talk = Talk(small, "/lance")
    properties = {"about": "x" * (READ_HERE_MAX_BYTES + 1)}
    assert talk("/namespace/large/create", {"properties": properties}).status == 200
    assert talk("/namespace/large/describe", {}).body["properties"] == properties
    again = talk("/namespace/large/create", {"properties": properties})
    assert (again.status, again.code) == (409, 2)


def test_a_query_takes_only_so_many_vectors(small: Program) -> None:
    vectors = [[0.5, 1.0]] * 20_000
    said = Talk(small, "/lance")("/table/ws$t/query", {"k": 5, "vector": {"multi_vector": vectors}})
    assert said.status == 400
    assert "20,000 vectors, but one query can have at most 1,000" in said.error


@pytest.mark.verify
def test_an_expectation_that_needs_too_much_memory_is_refused(small: Program) -> None:
    before = peak_bytes(small)
    with open_lake(small.url) as lake:
        text = "select 1 from ws.t where length(repeat('a', 1000000000)) > id"
        with pytest.raises(
            CommitVetoed, match=r"bytes of memory, .*\(--row-memory-max-bytes\)|Out of Memory"
        ):
            lake.expect("small", text)
        lake.expect("fair", "select 1 from ws.t where id < 0")
        lake.unexpect("fair")
    assert peak_bytes(small) - before < GROWTH_MAX_BYTES


@pytest.mark.verify
def test_a_server_that_is_killed_leaves_no_process(tmp_path: Path) -> None:
    with program(tmp_path) as server:
        talk = Talk(server, "/lance")
        assert talk("/namespace/ws/create", {}).status == 200
        assert talk("/table/ws$t/create", some_rows(1)).status == 200
        process = Ending(worker_of(server))
        server.process.kill()
        process.wait()


def packed(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue().to_pybytes())


# -- work that ends before it is done ----------------------------------------------------------------------


class Noticing:
    """A catalogue by which a test notices that work asks for something, before or after it is answered."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue, self.page_max = catalogue, catalogue.page_max
        self.before: dict[type[Call[Any]], Callable[[], Any]] = {}
        self.after: dict[type[Call[Any]], Callable[[], Any]] = {}

    def do(self, call: Call[R], progress: Progress = show_no_progress) -> R:
        self.before.get(type(call), lambda: None)()
        answer = self._catalogue.do(call, progress)
        self.after.get(type(call), lambda: None)()
        return answer

    def close(self) -> None: ...


@pytest.fixture
def noticing(lake: Lake) -> Noticing:
    lake.branch().create_namespace("ws")
    lance.write_dataset(some_rows(1, 2, 3), namespace_client=lake.lance(), table_id=["ws", "t"])
    return Noticing(lake.catalogue)


@pytest.fixture
def talk(noticing: Noticing) -> Iterator[Talk]:
    with local(noticing, [LANCE], gate=OpenGate(any_location=True)) as server:
        yield Talk(server, "/lance")


def kill_workers() -> None:
    for pid in shared_pool().processes:
        os.kill(pid, signal.SIGKILL)


def test_work_ends_when_its_client_goes_away(noticing: Noticing, talk: Talk) -> None:
    assert talk("/table/ws$t/count_rows", {}).body == 3  # so that there is a process
    processes = [Ending(pid) for pid in shared_pool().processes]
    has_begun, has_gone = threading.Event(), threading.Event()

    def wait() -> None:
        has_begun.set()
        assert has_gone.wait(30)

    noticing.before[ListLanceVersions] = wait
    body = b'{"predicate": "array_length(range(0, 100000000)) > 1"}'
    head = f"POST /lance/v1/table/ws$t/count_rows HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
    with socket.create_connection((talk.client.host, talk.client.port)) as connection:
        connection.sendall(head.encode() + body)
        assert has_begun.wait(30)
    has_gone.set()
    processes[-1].wait()
    noticing.before.clear()
    assert talk("/table/ws$t/count_rows", {}).body == 3


def test_a_worker_that_is_killed_is_told_and_replaced(noticing: Noticing, talk: Talk) -> None:
    noticing.before[ListLanceVersions] = kill_workers
    said = talk("/table/ws$t/count_rows", {})
    assert (said.status, said.body["detail"]) == (503, "worker_lost")
    assert "was killed by SIGKILL" in said.error
    noticing.before.clear()
    assert talk("/table/ws$t/count_rows", {}).body == 3


def test_work_that_was_ended_before_it_committed_has_changed_nothing(
    lake: Lake, noticing: Noticing, talk: Talk
) -> None:
    noticing.before[CommitLance] = kill_workers
    said = talk("/table/ws$new/create", some_rows(1))
    assert (said.status, said.body["detail"]) == (503, "worker_lost")
    assert [str(table.key) for table in lake.tables()] == ["ws.t"]
    assert lake.transactions() == []


@pytest.mark.verify
def test_a_change_that_was_committed_before_its_work_was_ended_is_told_as_such(
    lake: Lake, noticing: Noticing, talk: Talk
) -> None:
    noticing.after[CommitLance] = kill_workers
    said = talk("/table/ws$t/insert", some_rows(4))
    assert (said.status, said.body["detail"]) == (504, "outcome_unknown")
    assert "the change was committed" in said.error
    noticing.after.clear()
    assert talk("/table/ws$t/count_rows", {}).body == 4


def test_many_rows_arrive_whole(talk: Talk) -> None:
    rows = pa.table({"id": pa.array(range(200_000), pa.int64())})
    assert talk("/table/ws$many/create", rows).status == 200
    found = talk.rows("/table/ws$many/query", {"k": 1_000_000, "vector": {}})
    assert found.equals(rows)
