"""Large bodies: however many one caller sends at once, a few of them are in the server's memory."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import msgspec
import pytest

from penstock.errors import TooLarge
from penstock.server.large_bodies import LARGE_BODIES_OF_CALLER_MAX
from penstock.server.request_handler import require_few_values
from tests.server.running import Program, program, read_all

MIB = 2**20
SENDERS = 3 * LARGE_BODIES_OF_CALLER_MAX
BODY_BYTES = 16 * MIB


def memory_bytes(server: Program, field: str = "VmRSS") -> int:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.partition(f"{field}:")[2].split()[0]) * 1024


@pytest.mark.verify
def test_bodies_that_are_sent_at_once_are_not_all_in_memory_and_all_are_answered(tmp_path: Path) -> None:
    if not Path("/proc/self/status").exists():
        pytest.skip("memory is told by /proc")
    answers: list[bytes] = []
    may_end = threading.Event()
    sent = threading.Semaphore(0)

    def send(server: Program) -> None:
        with server.raw() as connection:
            head = "POST /api/penstock/v1/commits HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
            connection.sendall(f"{head}content-length: {BODY_BYTES}\r\n\r\n".encode())
            for part in range(BODY_BYTES // MIB):
                if part == BODY_BYTES // MIB - 1:
                    sent.release()
                    assert may_end.wait(240)
                connection.sendall(b" " * MIB)
            answers.append(read_all(connection)[:12])

    with program(tmp_path, "--body-timeout-s", "240") as server:
        before = memory_bytes(server)
        senders = [threading.Thread(target=send, args=(server,)) for _ in range(SENDERS)]
        for one in senders:
            one.start()
        for _ in range(LARGE_BODIES_OF_CALLER_MAX):
            assert sent.acquire(timeout=240)
        assert memory_bytes(server) - before < (LARGE_BODIES_OF_CALLER_MAX + 4) * BODY_BYTES
        assert not sent.acquire(timeout=0.5)  # nobody else gets further
        may_end.set()
        for one in senders:
            one.join(240)
        assert memory_bytes(server, "VmHWM") - before < 2 * (LARGE_BODIES_OF_CALLER_MAX + 4) * BODY_BYTES
    assert answers == [b"HTTP/1.1 400"] * SENDERS


SMALL_VALUES = {
    "transactions/none/reads": '{"reads":[{"key":"a"}]}',
    "transactions/none/reads?": '{"reads":[{}]}',
    "commits": '{"branch":"main","operations":[{"operation":"delete","key":"a"}]}',
    "files/commits": '{"key":"a","removed":["a"]}',
}
"""Addresses, and bodies of one item, which is between the brackets."""


@pytest.mark.verify
def test_a_body_of_many_small_values_takes_little_memory(tmp_path: Path) -> None:
    if not Path("/proc/self/status").exists():
        pytest.skip("memory is told by /proc")
    with program(tmp_path) as server:
        before = memory_bytes(server)
        for path, one in SMALL_VALUES.items():
            head, item, tail = re.split(r"(?<=\[)|(?=\])", one)
            body = (head + ",".join([item] * (31 * MIB // (len(item) + 1))) + tail).encode()
            reply = server.ask("POST", f"/api/penstock/v1/{path}", body)
            assert (reply.status, reply.code) == (413, "too_large")
            assert "--operations-max" in reply.message
        assert memory_bytes(server, "VmHWM") - before < 4 * 32 * MIB


def test_texts_within_a_text_are_no_values_of_a_body() -> None:
    lines = "".join(f'{{"add":{{"path":"p{n}","stats":"{{}}"}}}}\n' for n in range(1000))
    body = msgspec.json.encode({"tables": [{"key": "a", "actions": lines}]})
    require_few_values(body, 4_100)  # braces of the lines are counted, their texts are not
    with pytest.raises(TooLarge):
        require_few_values(msgspec.json.encode({"reads": [{}] * 5_000}), 4_100)
