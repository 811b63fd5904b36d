"""A server that kills itself in the middle of a request: `python dying_server.py LAKE PORT MOMENT`.

At the moment `apply` nothing of the request is stored, at `landed` all of it is; at `never` it lives on.
"""

from __future__ import annotations

import io
import os
import signal
import socket
import sys

import uvicorn

import penstock
from penstock.server.access import OpenGate
from penstock.server.app import Application
from penstock.server.logs import Log
from penstock.server.native import NATIVE
from penstock.testing.journal import JournalFormat


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    place, port, moment = sys.argv[1:]
    journal = JournalFormat()
    if moment == "apply":
        journal.during_apply = die
    elif moment == "landed":
        journal.during_landed = die
    with penstock.open(place, author="server", formats=[journal]) as lake:
        gate = OpenGate(any_location=True)
        application = Application(lake.catalogue, [NATIVE], gate=gate, log=Log(io.BytesIO()))
        listening = socket.socket()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", int(port)))
        listening.listen(128)
        server = uvicorn.Server(uvicorn.Config(application, log_config=None, lifespan="off"))
        server.run(sockets=[listening])


if __name__ == "__main__":
    main()
