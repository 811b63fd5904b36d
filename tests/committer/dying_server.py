"""A server that kills itself at a swap of its store: `python dying_server.py LAKE PORT POINT SWAPS`.

The point is `before swap` or `after swap`, after so many that went well; at `never` the server lives on.
"""

from __future__ import annotations

import io
import os
import signal
import socket
import sys
from pathlib import Path

import uvicorn

sys.path.insert(0, str(Path(__file__).parents[2]))

import penstock
from penstock.model.clock import now_us
from penstock.server.access import OpenGate
from penstock.server.app import Application
from penstock.server.logs import Log
from penstock.server.native import NATIVE
from penstock.stores import open_store
from penstock.testing.faults import FaultyStore, Point


def main(place: str, port: str, point: str, swaps: str) -> None:
    store = FaultyStore(open_store(place, False, now_us))
    if point != "never":
        store.at(Point(point), lambda: os.kill(os.getpid(), signal.SIGKILL), skip=int(swaps))
    with penstock.open(store, create=False, author="server") as lake:
        gate = OpenGate(any_location=True)
        application = Application(lake.catalogue, [NATIVE], gate=gate, log=Log(io.BytesIO()))
        listening = socket.socket()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", int(port)))
        listening.listen(128)
        uvicorn.Server(uvicorn.Config(application, log_config=None, lifespan="off")).run(sockets=[listening])


if __name__ == "__main__":
    main(*sys.argv[1:])
