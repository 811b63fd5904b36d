"""A bad network between a client and a server of this machine: slow, cut at a chosen byte, or silent.

    with Proxy(server.port) as proxy:
        ...                                       # a store that connects to proxy.port
        cut = proxy.cut_after("to_client", 0)     # the next answer is lost, after the server gave it
        ...
        assert cut.happened

A benchmark runs it as a process of its own, so that it does not share an interpreter with what it
measures: `with slow(server.port, delay_s=0.030) as port`.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal

from tests.servers import process
from tests.servers.process import HOST

Direction = Literal["to_server", "to_client"]


class Cut:
    """A cut that was asked for: so many more bytes pass in one direction, then the connection is gone."""

    def __init__(self, direction: Direction, count_bytes: int) -> None:
        self.direction = direction
        self.left_bytes = count_bytes
        self._happened = threading.Event()

    @property
    def happened(self) -> bool:
        return self._happened.is_set()

    def wait(self, timeout_s: float) -> bool:
        """Wait until it has happened; whether it has."""
        return self._happened.wait(timeout_s)

    def done(self) -> None:
        self._happened.set()


class Proxy:
    """Forwards connections to a port of this machine, and does to them what it is told.

    Every order may be given from any thread, and has taken effect when its call returns.
    """

    def __init__(self, target_port: int, *, delay_s: float = 0.0, port: int = 0) -> None:
        self.target_port = target_port
        self.delay_s = delay_s
        self.port = port
        self.is_silent = False
        self.cut: Cut | None = None
        self.cuts = 0
        self.connections = 0
        self.links: set[Link] = set()
        self.loop = asyncio.new_event_loop()
        self._server: asyncio.Server | None = None
        self._held = ExitStack()
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)

    def __enter__(self) -> Proxy:
        self.port = self._held.enter_context(process.hold_port(self.port))
        self._thread.start()
        self._order(self._listen)
        return self

    def __exit__(self, *_: object) -> None:
        self._order(self._close)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self._held.close()

    def delay(self, delay_s: float) -> None:
        """From now on bytes take so long, each way."""
        self.delay_s = delay_s

    def cut_after(self, direction: Direction, count_bytes: int) -> Cut:
        """Let so many more bytes pass in one direction, over all connections; cut where the next one comes.

        What came before it arrives. Replaces a cut that was asked for and has not happened.
        """
        cut = Cut(direction, count_bytes)

        async def set_trap() -> None:
            self.cut = cut

        self._order(set_trap)
        return cut

    def forget_cut(self) -> None:
        """Take back a cut that was asked for and has not happened."""

        async def forget() -> None:
            self.cut = None

        self._order(forget)

    def cut_all(self) -> None:
        """Cut every connection now; what was under way in them is lost."""

        async def cut() -> None:
            for link in list(self.links):
                link.cut_now()

        self._order(cut)

    def fall_silent(self) -> None:
        """Swallow every answer but keep the connections: only the client's patience ends the wait.

        Nor does the server hear that a client gave up: what it was asked for, it carries out.
        """
        self.is_silent = True

    def speak(self) -> None:
        """Forward answers again; those that were swallowed stay lost."""
        self.is_silent = False

    def refuse(self) -> None:
        """Let nobody connect any more. Connections that are there stay, and the port is nobody else's."""

        async def stop_listening() -> None:
            if self._server is not None:
                self._server.close()
                self._server = None

        self._order(stop_listening)

    def accept(self) -> None:
        """Let clients connect again, at the same port."""
        self._order(self._listen)

    async def _listen(self) -> None:
        if self._server is None:
            self._server = await self.loop.create_server(
                lambda: Link(self), HOST, self.port, backlog=512, reuse_address=True
            )

    async def _close(self) -> None:
        if self._server is not None:
            self._server.close()
        for link in list(self.links):
            link.cut_now()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        # A transport lets go of its socket one turn of the loop after it was told to.
        await asyncio.sleep(0)

    def _order(self, act: Callable[[], Coroutine[Any, Any, None]]) -> None:
        asyncio.run_coroutine_threadsafe(act(), self.loop).result()

    def _run(self) -> None:
        self.loop.run_forever()
        self.loop.close()


class Link(asyncio.Protocol):
    """A client's connection, and the one to the server that belongs to it."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._client: asyncio.Transport | None = None
        self._server: asyncio.Transport | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._is_cut = False
        self._under_way: dict[Direction, deque[bytes | Cut | None]] = {
            "to_server": deque(),
            "to_client": deque(),
        }

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._client = transport
        self._proxy.links.add(self)
        self._proxy.connections += 1
        # Nothing is read from the client before there is somebody to hand it to.
        transport.pause_reading()
        self._connecting = self._proxy.loop.create_task(self._connect(transport))

    async def _connect(self, client: asyncio.Transport) -> None:
        try:
            connected = await self._proxy.loop.create_connection(
                lambda: FarEnd(self), HOST, self._proxy.target_port
            )
        except OSError:
            self.cut_now()
            return
        self._server = connected[0]
        if self._is_cut or client.is_closing():
            self._server.abort()
        else:
            client.resume_reading()

    def ended(self, direction: Direction) -> None:
        """One side is gone; the other gets what was under way to it, and is ended too."""
        self.send(direction, None)
        both = (self._client, self._server)
        if all(transport is None or transport.is_closing() for transport in both):
            self._proxy.links.discard(self)

    def data_received(self, data: bytes) -> None:
        self.pass_on("to_server", data)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._proxy.is_silent:
            self.ended("to_server")

    def pass_on(self, direction: Direction, data: bytes) -> None:
        if self._is_cut or (direction == "to_client" and self._proxy.is_silent):
            return
        cut = self._proxy.cut
        if cut is not None and cut.direction == direction:
            if len(data) > cut.left_bytes:
                self._is_cut = True
                self._proxy.cut = None
                self.send(direction, data[: cut.left_bytes])
                self.send(direction, cut)
                return
            cut.left_bytes -= len(data)
        self.send(direction, data)

    def send(self, direction: Direction, what: bytes | Cut | None) -> None:
        """Let bytes, a cut or the end of one side arrive at the other, in order and after the delay."""
        self._under_way[direction].append(what)
        if self._proxy.delay_s > 0:
            self._proxy.loop.call_later(self._proxy.delay_s, self._arrive, direction)
        else:
            self._arrive(direction)

    def _arrive(self, direction: Direction) -> None:
        what = self._under_way[direction].popleft()
        receiver, sender = self._server, self._client
        if direction == "to_client":
            receiver, sender = sender, receiver
        if receiver is None or receiver.is_closing():
            return
        if isinstance(what, bytes):
            receiver.write(what)
            return
        receiver.close()
        if what is not None:
            if sender is not None:
                sender.abort()
            self._proxy.cuts += 1
            what.done()

    def cut_now(self) -> None:
        self._is_cut = True
        self._proxy.cuts += 1
        for transport in (self._client, self._server):
            if transport is not None:
                transport.abort()


class FarEnd(asyncio.Protocol):
    """The server's side of a link."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def data_received(self, data: bytes) -> None:
        self._link.pass_on("to_client", data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._link.ended("to_client")


class SlowProxy:
    """A proxy in a process of its own."""

    def __init__(self, running: process.Process, port: int) -> None:
        self.process = running
        self.port = port


@contextmanager
def slow(target_port: int, *, delay_s: float) -> Iterator[int]:
    """A port behind which another lies, so long a way off in each direction."""

    def launch() -> SlowProxy:
        [port] = process.free_ports(1)
        command = [sys.executable, __file__, str(target_port), str(port), str(delay_s)]
        root = str(Path(__file__).parents[2])
        running = process.start(command, process.new_directory(), environment={"PYTHONPATH": root})
        running.wait_until(lambda: process.accepts(port))
        return SlowProxy(running, port)

    with process.running(launch) as proxy:
        yield proxy.port


def main() -> None:
    target_port, port, delay_s = sys.argv[1:]
    with Proxy(int(target_port), delay_s=float(delay_s), port=int(port)):
        threading.Event().wait()


if __name__ == "__main__":
    main()
