"""A server that is killed in the middle of a write, and started again on the same lake."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock.errors import OutcomeUnknown
from penstock.lake.lake import Lake
from penstock.lake.remote import RemoteCatalogue, RemoteTimeouts
from penstock.testing.journal import JournalFormat, append, lines_of
from tests.servers import process

PROGRAM = Path(__file__).with_name("dying_server.py")
ROOT = str(Path(__file__).parents[2])


class Server:
    """A server process that can be started again at the same port."""

    def __init__(self, place: Path, port: int) -> None:
        self._place = place
        self._port = port
        self.url = f"http://127.0.0.1:{port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, moment: str) -> None:
        command = [sys.executable, str(PROGRAM), str(self._place), str(self._port), moment]
        self._process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": ROOT})
        while not process.accepts(self._port):
            assert self._process.poll() is None

    def wait(self) -> int:
        assert self._process is not None
        return self._process.wait(timeout=120)

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with process.hold_port() as port:
        server = Server(tmp_path / "lake", port)
        yield server
        server.stop()


def _lines(place: Path) -> list[str]:
    with penstock.open(place, formats=[JournalFormat()]) as lake:
        assert lake.fsck().damages == ()
        return lines_of(lake.kernel, "diary")


@pytest.mark.parametrize("moment", ["apply", "landed"])
def test_a_write_survives_its_server(server: Server, tmp_path: Path, moment: str) -> None:
    server.start(moment)

    def start_again() -> None:
        server.wait()
        server.start("never")

    with Lake(
        RemoteCatalogue(server.url, patience=RemoteTimeouts(total_s=240.0, wait_max_s=0.1)), author="tester"
    ) as lake:
        starting = threading.Thread(target=start_again)
        starting.start()
        commit = lake.commit([append("diary", "once")])
        starting.join()
        assert lake.show() == commit
        assert len(lake.log()) == 1
    server.stop()
    assert _lines(tmp_path / "lake") == ["once"]


@pytest.mark.parametrize(("moment", "lines"), [("apply", []), ("landed", ["once"])])
def test_a_write_whose_server_stays_away_has_an_unknown_outcome(
    server: Server, tmp_path: Path, moment: str, lines: list[str]
) -> None:
    server.start(moment)
    patience = RemoteTimeouts(total_s=0.5, wait_max_s=0.1)
    with (
        Lake(RemoteCatalogue(server.url, patience=patience), author="tester") as lake,
        pytest.raises(OutcomeUnknown) as caught,
    ):
        lake.commit([append("diary", "once")])
    key = caught.value.details["key"]
    assert _lines(tmp_path / "lake") == lines
    with penstock.open(tmp_path / "lake", author="tester", formats=[JournalFormat()]) as lake:
        assert (lake.outcome(key) is not None) == bool(lines)
        lake.commit([append("diary", "once")], idempotency_key=key)
    assert _lines(tmp_path / "lake") == ["once"]
