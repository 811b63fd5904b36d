"""One process of a pool, as the process that started it sees it.

Whoever waits for what it does watches it at the same time: a process that takes too much memory or time, or
that nobody waits for any longer, is killed by the thread that gave it work.
"""

from __future__ import annotations

import os
import re
import select
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic
from typing import IO, Final, NamedTuple

import msgspec

from penstock.errors import PenstockError, Unavailable, WorkerLost
from penstock.processes.child_process import ChildSettings
from penstock.processes.frames import (
    ASKED_MAX_BYTES,
    CLOSE_ON_EXEC,
    BrokenConnection,
    Frame,
    FrameKind,
    encode_call_head,
    pack_head,
    receive_frame,
)
from penstock.processes.limits import measure_own_memory
from penstock.processes.scratch import ScratchFolder
from penstock.wire.errors import decode_error

LOOK_EVERY_MS: Final = 10
"""How often a process that works is looked at."""
START_TIMEOUT_S: Final = 60.0
END_TIMEOUT_S: Final = 5.0
SAID_MAX_BYTES: Final = 2_000
"""Of what it wrote on its standard error before it died."""
OF_LAKE: Final = ("PENSTOCK_", "PG")
"""How variables begin that lead to a lake's database, or to a server."""
_NO_MEMORY: Final = re.compile(
    rb"memory allocation of \d+ bytes failed|bad_alloc|MemoryError|out of memory", re.IGNORECASE
)
"""What libraries write before they end a process that gets no more memory."""

Answer = Callable[[bytes], bytes]
Watch = Callable[[], None]


class TaskOutput(NamedTuple):
    """What a function gave."""

    head: bytes
    body: bytes
    file: IO[bytes] | None = None
    """Has the bytes, if they are many; whoever gets it closes it."""

    @property
    def size_bytes(self) -> int:
        return len(self.body) if self.file is None else os.fstat(self.file.fileno()).st_size


class MemoryExhausted(Exception):
    """A process had no more memory."""


class FunctionRefused(Exception):
    """A function raised an error of Penstock's."""

    def __init__(self, error: PenstockError) -> None:
        super().__init__(error.message)
        self.error = error


class WorkNotBegun(Exception):
    """A process ended before it called the function: another one can be given the same work."""

    def __init__(self, error: WorkerLost) -> None:
        super().__init__(error.message)
        self.error = error


class FunctionFailed(Exception):
    """A function raised what is no error of Penstock's: a bug. The text has where it was raised."""


class WorkerProcess:
    """A process that does one piece of work at a time. Used by one thread at a time."""

    def __init__(self, start: ChildSettings) -> None:
        ours, theirs = socket.socketpair()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the process is
        self._folder = ScratchFolder()
        try:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-P", "-m", "penstock.processes"),
                    *(str(theirs.fileno()), str(os.getpid())),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                pass_fds=[theirs.fileno()],
                process_group=0,  # Ctrl-C in a terminal is for who started it
                env=_make_child_environment(self._folder.path, start.memory_max_bytes),
            )
        except BaseException:
            ours.close()
            self._remove_files()
            raise
        finally:
            theirs.close()
        ours.setblocking(False)
        self._socket = ours
        self._poll = select.poll()
        self.tasks = 0
        """How many pieces of work it has done."""
        self.idle_bytes = 0
        """What it had before the first of them."""
        self._start = msgspec.json.encode(start)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def used_bytes(self) -> int:
        return measure_own_memory(self.pid)

    def await_ready(self) -> None:
        """``Unavailable`` if it ends instead, or is not ready in time."""
        until_s = monotonic() + START_TIMEOUT_S

        def check_start_time() -> None:
            if monotonic() > until_s:
                raise Unavailable(f"a row worker did not start within {START_TIMEOUT_S:g} s")

        try:
            self._send_parts(
                [pack_head(FrameKind.TASK, size=len(self._start)), self._start], check_start_time
            )
            frame = self._receive_frame(check_start_time)
        except (BrokenConnection, ConnectionError):
            raise Unavailable(f"a row worker did not start: {self.describe_end()}") from None
        if frame.kind is not FrameKind.READY:
            raise Unavailable(
                f"a row worker did not start: its first message was {frame.kind.name}, not READY"
            )
        self.idle_bytes = self.used_bytes

    def run_function(
        self, function: str, head: bytes, body: bytes, answer: Answer, watch: Watch
    ) -> TaskOutput:
        """What a function comes to; what it asks meanwhile is answered.

        ``FunctionRefused`` and ``FunctionFailed`` say that the function raised something; the process can be
        given more work. After all else it has to be ended: ``MemoryExhausted``, ``WorkerLost`` if it has
        ended for another reason, or ``WorkNotBegun`` if that was before it called the function, what
        ``answer`` raises, and what ``watch`` does, which is called all the time.
        """
        self.tasks += 1
        has_begun = False
        try:
            self._send_parts(
                [pack_head(FrameKind.TASK, encode_call_head(function, head), len(body)), body], watch
            )
            while True:
                frame = self._receive_frame(watch)
                match frame.kind:
                    case FrameKind.BEGUN:
                        has_begun = True
                    case FrameKind.ASKED:
                        data = answer(frame.data)
                        self._send_parts([pack_head(FrameKind.ANSWER, size=len(data)), data], watch)
                    case FrameKind.DONE:
                        return TaskOutput(frame.head, frame.data, _open_frame_file(frame))
                    case FrameKind.REFUSED:
                        raise FunctionRefused(_decode_error(frame.data))
                    case FrameKind.FAILED:
                        raise FunctionFailed(frame.data.decode(errors="replace"))
                    case FrameKind.TOO_LARGE:
                        raise MemoryExhausted
                    case _:
                        raise BrokenConnection(f"an unexpected message {frame.kind.name} from the row worker")
        except (BrokenConnection, ConnectionError) as problem:
            lost = self._describe_lost_process(problem)
            if isinstance(lost, WorkerLost) and not has_begun:
                raise WorkNotBegun(lost) from None
            raise lost from None

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def kill_process(self) -> None:
        """Have it end; may be called while another thread waits for it, which sees that it has."""
        with suppress(ProcessLookupError):
            self._process.kill()

    def end_process(self) -> None:
        """End it, whatever it does, and let go of what belongs to it."""
        self.kill_process()
        self._socket.close()
        with suppress(subprocess.TimeoutExpired):  # the system is busy with its memory
            self._process.wait(END_TIMEOUT_S)
        self._remove_files()

    def _remove_files(self) -> None:
        self._errors.close()
        self._folder.remove_folder()

    def describe_end(self) -> str:
        """How it ended, and what it wrote before, for the log."""
        written = self._read_stderr().decode(errors="replace").strip()
        return f"{self._describe_exit()}{f'; it wrote: {written}' if written else ''}"

    def _describe_lost_process(self, problem: Exception) -> Exception:
        try:
            self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:  # it lives, and says what it should not
            return WorkerLost(f"the response of the row worker cannot be parsed: {problem}")
        if _NO_MEMORY.search(self._read_stderr()):
            return MemoryExhausted()
        return WorkerLost(
            f"the process that worked on the request {self._describe_exit()}; the server has started "
            "another one. If "
            "it happens again with the same request, the request is the cause",
        )

    def _describe_exit(self) -> str:
        status = self._process.poll()
        if status is None:
            return "goes on"
        return (
            f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        )

    def _read_stderr(self) -> bytes:
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - SAID_MAX_BYTES))
        return self._errors.read()

    # -- bytes ---------------------------------------------------------------------------------------------

    def _send_parts(self, parts: Sequence[bytes], watch: Watch) -> None:
        for part in parts:
            view = memoryview(part)
            while view:
                try:
                    view = view[self._socket.send(view) :]
                except BlockingIOError:
                    self._await_event(select.POLLOUT, watch)

    def _receive_frame(self, watch: Watch) -> Frame:
        def receive_bytes(size: int) -> tuple[bytes, Sequence[int]]:
            buffer, files = bytearray(size), list[int]()
            have = 0
            while have < size:
                try:
                    data, came, _, _ = socket.recv_fds(
                        self._socket, min(size - have, 2**20), 1, CLOSE_ON_EXEC
                    )
                except BlockingIOError:
                    self._await_event(select.POLLIN, watch)
                    continue
                files += came
                if not data:
                    raise BrokenConnection("the row worker has ended")
                buffer[have : have + len(data)] = data
                have += len(data)
            return bytes(buffer), files

        return receive_frame(receive_bytes, ASKED_MAX_BYTES)

    def _await_event(self, event: int, watch: Watch) -> None:
        """Until something can be read or written; meanwhile it is watched."""
        self._poll.register(self._socket, event)
        while not self._poll.poll(LOOK_EVERY_MS):
            watch()


def _decode_error(data: bytes) -> PenstockError:
    error = decode_error(500, data)
    if error is None:
        raise BrokenConnection("the row worker sent an error that cannot be decoded")
    return error


def _open_frame_file(frame: Frame) -> IO[bytes] | None:
    if not frame.files:
        return None
    file = os.fdopen(frame.files[0], "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise BrokenConnection("the row worker sent its result in something other than a regular file")
    return file


def _make_child_environment(folder: str, memory_max_bytes: int) -> dict[str, str]:
    """This process's own, where keys of storage are, without what leads to the lake itself; with a folder for
    what does not fit in memory, which goes with the process. Lance reads no further ahead than fits."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(OF_LAKE)}
    read_ahead = {"LANCE_DEFAULT_IO_BUFFER_SIZE": str(memory_max_bytes // 8)}
    return {**read_ahead, **environment, "TMPDIR": folder}
