"""Plain requests to a server with Lance's API, ours or another one's."""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]
from lance.namespace import RestNamespace

from tests.server.running import Client

STREAM = "application/vnd.apache.arrow.stream"


def lance_at(url: str, **properties: str) -> RestNamespace:
    """Lance's own client of an address."""
    return RestNamespace(uri=url, **properties)  # type: ignore[no-untyped-call]


class Said(NamedTuple):
    """What a server answered."""

    status: int
    body: Any
    """Of JSON, what it says; of anything else, its type."""
    headers: dict[str, str]

    @property
    def code(self) -> int:
        return int(self.body["code"])

    @property
    def error(self) -> str:
        return str(self.body["error"])


class Talk:
    """Asks below one address."""

    def __init__(self, client: Client, base: str) -> None:
        self.client, self.base = client, base

    def __call__(self, path: str, body: Any = None, method: str = "POST", **headers: str) -> Said:
        """Ask for something below ``/v1``; rows are sent as Arrow has them, all else as JSON."""
        told = {name.replace("_", "-"): value for name, value in headers.items()}
        if isinstance(body, pa.Table):
            body, told = stream_of(body), {"content-type": STREAM, **told}
        reply = self.client.ask(method, f"{self.base}/v1{path}", body, told)
        kind = reply.headers.get("content-type", "")
        is_json = reply.body and kind.startswith("application/json")
        return Said(reply.status, reply.json if is_json else (kind if reply.body else None), reply.headers)

    def rows(self, path: str, body: Any) -> pa.Table:
        """What a query gives."""
        reply = self.client.ask("POST", f"{self.base}/v1{path}", body)
        assert reply.status == 200, reply.body
        return pa.ipc.open_file(reply.body).read_all()


def stream_of(rows: pa.Table) -> bytes:
    """Rows as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue().to_pybytes())


def file_of(rows: pa.Table) -> bytes:
    """Rows as an Arrow IPC file."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue().to_pybytes())


def some_rows(*ids: int) -> pa.Table:
    """Rows with a number, a text and a vector each."""
    vectors = pa.array([[float(one), 1.0] for one in ids], pa.list_(pa.float32(), 2))
    return pa.table(
        {"id": pa.array(ids, pa.int64()), "text": [f"row {one}" for one in ids], "vector": vectors}
    )
