"""What a bucket refuses is told as that: which bucket, which right, and that no repetition helps."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from penstock.errors import ConflictError, Denied, LakeNotFound, StorageRefused, TryAgainError, Unavailable
from penstock.storage.buckets import UnansweredWrite
from penstock.storage.remote import RemoteBucket


class Refusing(ThreadingHTTPServer):
    """A server that answers every request in the same way, as S3 words it."""

    def __init__(self, status: int, code: str) -> None:
        self.asked = 0

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                server.asked += 1
                self.rfile.read(int(self.headers.get("content-length", 0)))
                body = f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode()
                self.send_response(status)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = answer  # noqa: N815

            def log_message(self, *_: object) -> None: ...

        server = self
        super().__init__(("127.0.0.1", 0), Handler)


@contextmanager
def refusing(status: int, code: str) -> Iterator[Refusing]:
    with Refusing(status, code) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "nothing-secret")


async def _list(bucket: RemoteBucket) -> None:
    async for _ in bucket.list("a"):
        pass


OPERATIONS: dict[str, tuple[str, Callable[[RemoteBucket], Awaitable[Any]]]] = {
    "get": ("read", lambda bucket: bucket.get("a")),
    "get_range": ("read", lambda bucket: bucket.get_range("a", 0, 1)),
    "put": ("write", lambda bucket: bucket.put("a", b"")),
    "create": ("write", lambda bucket: bucket.put("a", b"", "absent")),
    "put_pieces": ("write", lambda bucket: bucket.put_pieces("a", [b"1"])),
    "list": ("list", _list),
    "delete": ("delete", lambda bucket: bucket.delete(["a"])),
}


def error_of(
    server: Refusing, ask: Callable[[RemoteBucket], Awaitable[Any]], part: str = "storage"
) -> Exception:
    async def work() -> None:
        endpoint = f"http://127.0.0.1:{server.server_port}"
        bucket = RemoteBucket("s3://b", "s3", "b", endpoint=endpoint, region="r", timeout_s=5)
        bucket.part = part
        await ask(bucket)

    with pytest.raises(Exception) as raised:  # noqa: PT011 - which one is what is looked at
        asyncio.run(work())
    return raised.value


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize(
    ("status", "code", "why"),
    [
        (403, "AccessDenied", "its access keys lack the permission to {right} there"),
        (403, "RequestTimeTooSkewed", "this machine's clock differs too much from that of the storage"),
        (400, "ExpiredToken", "the access keys have expired"),
        (401, "Unauthorized", "its access keys lack the permission to {right} there"),
        (403, "InvalidAccessKeyId", "the access keys or their secret are wrong"),
        (403, "SignatureDoesNotMatch", "the access keys or their secret are wrong"),
        (404, "NoSuchBucket", "there is no such bucket"),
    ],
)
def test_a_refusal_of_storage_is_one_whatever_is_asked(
    operation: str, status: int, code: str, why: str
) -> None:
    right, ask = OPERATIONS[operation]
    with refusing(status, code) as server:
        error = error_of(server, ask)
        assert server.asked == 1
    assert isinstance(error, StorageRefused), repr(error)
    assert not isinstance(error, ConflictError | TryAgainError)
    assert error.message.startswith("s3://b ")
    assert why.format(right=right) in error.message
    assert "trying again does not help" in error.message
    assert error.details == {"url": "s3://b", "right": right, "part": "storage"}


def test_a_head_that_is_refused_is_a_refusal_too() -> None:
    with refusing(403, "") as server:
        assert isinstance(error_of(server, lambda bucket: bucket.head("a")), StorageRefused)


def test_a_lake_whose_bucket_is_not_there_is_not_found() -> None:
    with refusing(404, "NoSuchBucket") as server:
        error = error_of(server, OPERATIONS["get"][1], part="")
    assert isinstance(error, LakeNotFound)


@pytest.mark.parametrize("operation", ["put", "delete"])
def test_what_passes_is_no_refusal(operation: str) -> None:
    with refusing(503, "SlowDown") as server:
        error = error_of(server, OPERATIONS[operation][1])
    assert isinstance(error, Unavailable | UnansweredWrite)
    assert not isinstance(error, Denied)
