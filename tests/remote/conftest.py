"""Lakes behind a server of this process, and beside each the lake itself."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest

import penstock
from penstock.kernel.reachable import Progress, show_no_progress
from penstock.lake.calls import Call
from penstock.lake.lake import Lake
from penstock.lake.remote import RemoteCatalogue, RemoteTimeouts
from penstock.testing.journal import JournalFormat
from tests.remote.serving import Served, serving
from tests.servers.proxy import Proxy

R = TypeVar("R")

PATIENT = RemoteTimeouts(answer_timeout_s=60.0, total_s=120.0)
"""Where no answer is to be lost: a machine with much else to do may be late with each."""
QUICK = RemoteTimeouts(
    connect_timeout_s=10.0, answer_timeout_s=60.0, total_s=120.0, wait_max_s=0.05, settle_s=0.2
)


@pytest.fixture
def journal() -> JournalFormat:
    return JournalFormat()


@pytest.fixture
def embedded(journal: JournalFormat) -> Iterator[Lake]:
    """A lake in memory. The server serves this one."""
    with penstock.open("memory:", author="tester", formats=[journal]) as lake:
        yield lake


class Switch:
    """A catalogue that stands for the lake of the test that runs, so that one server can serve them all."""

    page_max: int | None = None

    def __init__(self) -> None:
        self.lake: Lake | None = None
        self.afterwards: Callable[[Call[Any]], None] = _nothing
        """Told every call that was carried out, before it is answered."""

    def do(self, call: Call[R], progress: Progress = show_no_progress) -> R:
        assert self.lake is not None
        answer = self.lake.do(call, progress)
        self.afterwards(call)
        return answer

    def wait_for(self, kind: type[Call[Any]]) -> threading.Event:
        """An event that is set once a call of this kind was carried out."""
        carried_out = threading.Event()
        self.afterwards = lambda call: carried_out.set() if isinstance(call, kind) else None
        return carried_out

    def close(self) -> None:
        pass


def _nothing(_: Call[Any]) -> None:
    pass


@pytest.fixture(scope="session")
def switch() -> Switch:
    return Switch()


@pytest.fixture(scope="session")
def server(switch: Switch) -> Iterator[Served]:
    with serving(switch) as server:
        yield server


@pytest.fixture
def served(embedded: Lake, server: Served, switch: Switch) -> Served:
    """The server, which serves the test's lake."""
    switch.lake, switch.afterwards = embedded, _nothing
    return server


@pytest.fixture(scope="session")
def network(server: Served) -> Iterator[Proxy]:
    with Proxy(server.port) as proxy:
        yield proxy


@pytest.fixture
def proxy(served: Served, network: Proxy) -> Iterator[Proxy]:
    """A network between a client and the server; good, until it is told otherwise."""
    yield network
    network.forget_cut()
    network.speak()
    network.accept()
    network.cut_all()


@pytest.fixture
def remote(served: Served) -> Iterator[Lake]:
    """The same lake, through the server."""
    with Lake(RemoteCatalogue(served.url, patience=PATIENT), author="tester") as lake:
        yield lake
