"""The bad network does what it says: a test that hangs on it could not fail otherwise."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.servers.process import HOST, free_ports
from tests.servers.proxy import Proxy, slow

TIMEOUT_S = 20.0


class Echo:
    """A server that answers with what it is sent, and remembers it."""

    def __init__(self) -> None:
        self.heard = b""
        self.lost = threading.Semaphore(0)
        self._listener = socket.create_server((HOST, 0))
        self.port = int(self._listener.getsockname()[1])
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            answering = threading.Thread(target=self._answer, args=(connection,), daemon=True)
            self._threads.append(answering)
            answering.start()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            try:
                while data := connection.recv(65536):
                    self.heard += data
                    connection.sendall(data)
            except OSError:
                pass
        self.lost.release()

    def close(self) -> None:
        # Closing alone would leave the accepting thread waiting.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(TIMEOUT_S)


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.close()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[Proxy]:
    with Proxy(echo.port) as started:
        yield started


@contextmanager
def connected(port: int) -> Iterator[socket.socket]:
    with socket.create_connection((HOST, port), timeout=TIMEOUT_S) as client:
        yield client


def receive(client: socket.socket, count_bytes: int) -> bytes:
    """So many bytes, or fewer if the connection ends."""
    received = b""
    while len(received) < count_bytes:
        try:
            data = client.recv(count_bytes - len(received))
        except ConnectionResetError:
            break
        if not data:
            break
        received += data
    return received


def test_what_is_sent_arrives_unchanged_and_in_order(proxy: Proxy) -> None:
    sent = bytes(range(256)) * 4096
    with connected(proxy.port) as client:
        sending = threading.Thread(target=client.sendall, args=(sent,))
        sending.start()
        assert receive(client, len(sent)) == sent
        sending.join()
    assert proxy.cuts == 0


def test_bytes_take_the_delay_each_way_and_stay_in_order(proxy: Proxy) -> None:
    proxy.delay(0.05)
    with connected(proxy.port) as client:
        began = time.monotonic()
        for number in range(50):
            client.sendall(b"%02d" % number)
        assert receive(client, 100) == b"".join(b"%02d" % number for number in range(50))
        assert time.monotonic() - began >= 0.1


def test_a_proxy_in_its_own_process_delays_too(echo: Echo) -> None:
    with slow(echo.port, delay_s=0.05) as port, connected(port) as client:
        began = time.monotonic()
        client.sendall(b"hello")
        assert receive(client, 5) == b"hello"
        assert time.monotonic() - began >= 0.1


@pytest.mark.parametrize("delay_s", [0.0, 0.02])
@pytest.mark.parametrize("count_bytes", [0, 1, 7, 9])
def test_the_server_gets_exactly_the_bytes_before_the_cut(
    proxy: Proxy, echo: Echo, count_bytes: int, delay_s: float
) -> None:
    proxy.delay(delay_s)
    with connected(proxy.port) as client:
        cut = proxy.cut_after("to_server", count_bytes)
        client.sendall(b"0123456789")
        assert cut.wait(TIMEOUT_S)
        assert receive(client, 10) in (b"", b"0123456789"[:count_bytes])
        assert echo.lost.acquire(timeout=TIMEOUT_S)
    assert echo.heard == b"0123456789"[:count_bytes]
    assert proxy.cuts == 1


@pytest.mark.parametrize("count_bytes", [0, 1, 9])
def test_the_client_gets_exactly_the_bytes_before_the_cut(proxy: Proxy, echo: Echo, count_bytes: int) -> None:
    with connected(proxy.port) as client:
        cut = proxy.cut_after("to_client", count_bytes)
        client.sendall(b"0123456789")
        assert receive(client, 10) == b"0123456789"[:count_bytes]
        assert cut.wait(TIMEOUT_S)
    assert echo.heard == b"0123456789"


def test_a_cut_counts_the_bytes_of_all_connections(proxy: Proxy) -> None:
    cut = proxy.cut_after("to_server", 7)
    with connected(proxy.port) as first, connected(proxy.port) as second:
        first.sendall(b"01234")
        assert receive(first, 5) == b"01234"
        second.sendall(b"56789")
        assert len(receive(second, 5)) <= 2
        assert cut.wait(TIMEOUT_S)
        first.sendall(b"on")
        assert receive(first, 2) == b"on"


def test_a_cut_that_was_taken_back_does_not_happen(proxy: Proxy) -> None:
    cut = proxy.cut_after("to_client", 0)
    proxy.forget_cut()
    with connected(proxy.port) as client:
        client.sendall(b"hello")
        assert receive(client, 5) == b"hello"
    assert not cut.happened


def test_a_cut_on_command_ends_every_connection(proxy: Proxy) -> None:
    with connected(proxy.port) as first, connected(proxy.port) as second:
        for client in (first, second):
            client.sendall(b"hello")
            assert receive(client, 5) == b"hello"
        proxy.cut_all()
        assert receive(first, 1) == b""
        assert receive(second, 1) == b""
    assert proxy.cuts == 2


def test_in_silence_the_server_hears_and_the_client_does_not(proxy: Proxy, echo: Echo) -> None:
    with connected(proxy.port) as client:
        client.sendall(b"before")
        assert receive(client, 6) == b"before"
        proxy.fall_silent()
        client.sendall(b"unanswered")
        client.settimeout(0.2)
        with pytest.raises(TimeoutError):
            client.recv(1)
        assert echo.heard == b"beforeunanswered"
        proxy.speak()
        client.settimeout(TIMEOUT_S)
        client.sendall(b"after")
        assert receive(client, 5) == b"after"


def test_who_is_refused_can_connect_again_later(proxy: Proxy) -> None:
    with connected(proxy.port) as old:
        old.sendall(b"hello")
        assert receive(old, 5) == b"hello"
        proxy.refuse()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((HOST, proxy.port), timeout=TIMEOUT_S)
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind((HOST, proxy.port))  # so that it is there when clients may connect again
        old.sendall(b"still")
        assert receive(old, 5) == b"still"
    proxy.accept()
    with connected(proxy.port) as new:
        new.sendall(b"again")
        assert receive(new, 5) == b"again"


def test_a_server_that_is_not_there_ends_the_connection() -> None:
    with Proxy(free_ports(1)[0]) as proxy, connected(proxy.port) as client:
        assert receive(client, 1) == b""
