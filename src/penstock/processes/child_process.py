"""What runs in a process of a pool: it is given a function's name and argument, and gives back its result.

It ends when the process that started it does, however that ended: the system kills it then, and so does the
end of their socket. It is not told anything by its command line or environment that others may not see.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import socket
import sys
import tempfile
import threading
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import IO, Any, Final, NamedTuple

import msgspec

from penstock.errors import PenstockError
from penstock.model.decoders import get_json_decoder
from penstock.processes.frames import (
    INLINE_MAX_BYTES,
    BrokenConnection,
    Frame,
    FrameKind,
    decode_call_head,
    pack_head,
    receive_frame,
)
from penstock.processes.limits import bound_this_process
from penstock.wire.errors import encode_error

PR_SET_PDEATHSIG: Final = 1
TASK_MAX_BYTES: Final = 2**40
"""What the process that started this one sends is not bounded here: it has bounded it before."""


class ChildSettings(msgspec.Struct, frozen=True):
    """What a process is told before anything else."""

    imports: tuple[str, ...]
    """Modules that work will need."""
    memory_max_bytes: int


class TaskResult(NamedTuple):
    """What a function gives."""

    head: bytes = b""
    """Small, to say what the body is."""
    body: bytes | IO[bytes] = b""
    """Bytes, or a file of which all is meant. A file takes no memory where it arrives."""


class ChildTask:
    """One task, as the function that carries it out sees it."""

    def __init__(self, parent: ParentConnection, head: bytes, body: bytes, memory_max_bytes: int) -> None:
        self._parent = parent
        self.head, self.body = head, body
        self.memory_max_bytes = memory_max_bytes
        self._lock = threading.Lock()
        self._is_over = False

    def ask(self, question: bytes) -> bytes:
        """Send a question to the process that gave the task; its answer. Safe to call from many threads."""
        with self._lock:
            if self._is_over:
                raise RuntimeError("the task of the row worker that asks this has already ended")
            self._parent.send_frame(FrameKind.ASKED, data=question)
            return self._parent.receive_frame().data

    def finish(self) -> None:
        """Let later calls of ``ask`` fail."""
        with self._lock:
            self._is_over = True


class ParentConnection:
    """The socket to the process that started this one."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def send_frame(
        self, kind: FrameKind, head: bytes = b"", data: bytes = b"", file: IO[bytes] | None = None
    ) -> None:
        """``BrokenConnection`` if the other process has ended."""
        start = pack_head(kind, head, len(data))
        try:
            if file is not None:
                sent_bytes = socket.send_fds(self._connection, [start], [file.fileno()])
                start = start[sent_bytes:]
            self._connection.sendall(start)
            if data:
                self._connection.sendall(data)
        except ConnectionError as problem:  # not to be taken for one that the work has met
            raise BrokenConnection(str(problem)) from None

    def receive_frame(self) -> Frame:
        return receive_frame(self._receive_bytes, TASK_MAX_BYTES)

    def _receive_bytes(self, size: int) -> tuple[bytes, Sequence[int]]:
        buffer = bytearray(size)
        view, have = memoryview(buffer), 0
        while have < size:
            try:
                count = self._connection.recv_into(view[have:])
            except ConnectionError:
                count = 0
            if not count:
                raise BrokenConnection("the other process has ended")
            have += count
        return bytes(buffer), ()


def run_tasks(connection: socket.socket, parent_id: int) -> None:
    """Do what comes, one piece after the other, until the other side ends."""
    end_with(parent_id, connection)
    parent = ParentConnection(connection)
    try:
        start = get_json_decoder(ChildSettings).decode(parent.receive_frame().data)
        for module in start.imports:
            with contextlib.suppress(ImportError):  # an extra that is not installed; the work will say so
                import_module(module)
        bound_this_process(start.memory_max_bytes)
        parent.send_frame(FrameKind.READY)
        while True:
            frame = parent.receive_frame()
            function, head = decode_call_head(frame.head)
            parent.send_frame(FrameKind.BEGUN)
            _run_task(parent, function, ChildTask(parent, head, frame.data, start.memory_max_bytes))
            del frame
    except BrokenConnection:
        return


def _run_task(parent: ParentConnection, function: str, task: ChildTask) -> None:
    """Carry out one task, and send its result."""
    try:
        module, _, name = function.partition(":")
        result: TaskResult = getattr(import_module(module), name)(task)
    except PenstockError as error:
        task.finish()
        parent.send_frame(FrameKind.REFUSED, data=encode_error(error, ""))
    except MemoryError:
        task.finish()
        parent.send_frame(FrameKind.TOO_LARGE)
    except BrokenConnection:
        raise
    except Exception:  # noqa: BLE001 - a bug, which is told to who looks after the program
        task.finish()
        parent.send_frame(FrameKind.FAILED, data=traceback.format_exc().encode(errors="replace"))
    else:
        task.finish()
        _send_result(parent, result)


def _send_result(parent: ParentConnection, result: TaskResult) -> None:
    body = result.body
    if isinstance(body, bytes):
        if len(body) <= INLINE_MAX_BYTES:
            parent.send_frame(FrameKind.DONE, result.head, body)
            return
        written = tempfile.TemporaryFile()  # noqa: SIM115 - closed below
        written.write(body)
        body = written
    with body as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        if size <= INLINE_MAX_BYTES:
            parent.send_frame(FrameKind.DONE, result.head, file.read())
        else:
            parent.send_frame(FrameKind.DONE, result.head, file=file)


def end_with(parent_id: int, connection: socket.socket) -> None:
    """End this process when the one that started it ends, also while a function holds Python's lock.

    Signals that are meant to stop the program are for that one alone: it lets open work end.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent_id:  # it has ended already
            os._exit(1)
    threading.Thread(target=_watch_parent, args=(connection,), name="parent", daemon=True).start()


def _watch_parent(connection: socket.socket) -> None:
    poll: Any = select.poll()
    poll.register(connection, 0)  # that it was closed is told without being asked for
    poll.poll()
    os._exit(1)
