"""Penstock's own server in a process of its own, found by the address that it prints."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from tests.servers.process import Process, new_directory, running, start

PENSTOCK = Path(sys.executable).with_name("penstock")
ADDRESS = re.compile(r"http://[\w.-]+:\d+")


@dataclass
class PenstockServer:
    process: Process
    uri: str


def serving(lake: str, *, for_everybody: bool = True) -> AbstractContextManager[PenstockServer]:
    """A server over a lake, on a free port, while the block runs. It may ask for tokens."""
    return running(lambda: launch(lake, ["--dev"] if for_everybody else []))


def launch(lake: str, options: Sequence[str]) -> PenstockServer:
    process = start([PENSTOCK, "serve", *options, "--lake", lake, "--port", "0"], new_directory())
    process.wait_until(lambda: ADDRESS.search(process.last_words()) is not None)
    address = ADDRESS.search(process.last_words())
    assert address is not None
    return PenstockServer(process, address[0])
