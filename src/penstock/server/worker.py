"""One of several processes that serve a lake: what ``workers`` starts, with the listening socket's number."""

from __future__ import annotations

import os
import shutil
import socket
import sys
import threading

from penstock.errors import PenstockError
from penstock.model.decoders import get_json_decoder
from penstock.server.logs import Log, LogLevel
from penstock.server.metrics_endpoint import DIRECTORY, MetricsEndpoint
from penstock.server.options import ServerOptions
from penstock.server.run import ServerProcess, open_lake_to_serve


def serve_until_end(descriptor: int) -> int:
    """Serve until a signal comes, or standard input ends; returns the process's exit status."""
    line = sys.stdin.buffer.readline()
    if not line:
        return 1
    serving = get_json_decoder(ServerOptions).decode(line)
    log = Log(sys.stderr.buffer, serving.log_level, serving.logs_for_people, os.getpid())
    figures = MetricsEndpoint()
    try:
        lake = open_lake_to_serve(serving, figures.meter)
    except PenstockError as error:
        log.log_message(LogLevel.ERROR, f"the lake cannot be opened: {error.message}", error=error.code)
        return error.exit_code
    with lake, socket.socket(fileno=descriptor) as listener:
        service = ServerProcess(lake.catalogue, serving, figures, worker=os.getpid())
        is_alone = threading.Event()
        threading.Thread(
            target=_watch_supervisor, args=(service, is_alone), name="supervisor", daemon=True
        ).start()
        service.serve_until_signal(listener, _report_ready)
    if is_alone.is_set():  # nobody else is left to tidy up
        shutil.rmtree(os.environ[DIRECTORY], ignore_errors=True)
    return 0


def _watch_supervisor(service: ServerProcess, is_alone: threading.Event) -> None:
    """Wait for the supervisor's end, and drain then."""
    while os.read(sys.stdin.fileno(), 1024):
        pass
    is_alone.set()
    service.log.log_message(LogLevel.WARNING, "the supervisor has ended, so this worker stops")
    service.stop()


def _report_ready() -> None:
    sys.stdout.write("ready\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(serve_until_end(int(sys.argv[1])))
