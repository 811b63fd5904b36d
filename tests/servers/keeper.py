"""Run a server for as long as somebody holds the other end of the standard input.

`python keeper.py DIRECTORY SIGNAL USER COMMAND...` writes what the server says to DIRECTORY/log and
removes DIRECTORY at the end. The end of the input is the one thing that also comes when the tests are
killed outright, so no server outlives them. An empty USER means the one who runs the tests.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

STOPPING_MAX_S = 10.0


def main() -> None:
    directory, stop_signal, user, *command = sys.argv[1:]
    # A shell starts what runs in its background deaf to these, and a server would inherit that.
    for each in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(each, signal.SIG_DFL)
    with Path(directory, "log").open("wb") as log:
        server = subprocess.Popen(
            command,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            user=user or None,
            group=pwd.getpwnam(user).pw_gid if user else None,
            extra_groups=[] if user else None,
            start_new_session=True,
        )
    print(server.pid, flush=True)
    asked = threading.Thread(target=stop_when_asked, args=(server, int(stop_signal)), daemon=True)
    asked.start()
    server.wait()
    asked.join()
    shutil.rmtree(directory, ignore_errors=True)


def stop_when_asked(server: subprocess.Popen[bytes], stop_signal: int) -> None:
    sys.stdin.buffer.read()
    # What it started is stopped with it.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(server.pid, stop_signal)
    try:
        server.wait(STOPPING_MAX_S)
    except subprocess.TimeoutExpired:
        os.killpg(server.pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
