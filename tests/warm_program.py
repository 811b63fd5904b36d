"""The program ``penstock``, kept warm, for documents that call it a hundred times.

Most of what a short command costs is to load Python and its modules. Here one process has them loaded, and
forks for each call. ``penstock`` on the documents' PATH is a few lines that hand over their arguments,
directory, environment and open files, and end as the fork ended: so pipes, redirections and exit statuses are
those of a program of its own. ``tests/cli/test_program.py`` starts the real one.
"""

import io
import marshal
import os
import signal
import socket
import subprocess
import sys
import traceback
from importlib import import_module
from pathlib import Path
from typing import NoReturn

CALLER = """\
#!{python} -IS
import marshal, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    socket.send_fds(server, [b"."], [0, 1, 2])
    server.sendall(marshal.dumps((sys.argv[1:], os.getcwd(), dict(os.environ))))
    server.shutdown(socket.SHUT_WR)
    status = server.recv(1)
sys.exit(status[0] if status else "penstock ended without an exit status")
"""


def install(folder: Path, group: int, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """Put a ``penstock`` into ``folder``, and start what answers it, in a process group that ends it."""
    address = str(folder / "socket")
    caller = folder / "penstock"
    caller.write_text(CALLER.format(python=sys.executable, address=address))
    caller.chmod(0o755)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()  # before the process starts, so that a caller waits for it
        return subprocess.Popen(
            [sys.executable, __file__, str(listener.fileno())],
            stdin=subprocess.DEVNULL,
            env=environment,
            pass_fds=[listener.fileno()],
            process_group=group,
        )


def serve(listener: socket.socket) -> NoReturn:
    """Fork for each call, for ever."""
    root = import_module("penstock.cli.root")
    for module in sorted({module for module, _ in root.COMMANDS.values()}):
        import_module(f"penstock.cli.commands.{module}")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the forks
    while True:
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            answer(connection)
        connection.close()


def answer(connection: socket.socket) -> NoReturn:
    """Be the program: with the caller's files, directory, environment and arguments."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    status = 1
    try:
        _, files, _, _ = socket.recv_fds(connection, 1, 3)
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        asked = b"".join(iter(lambda: connection.recv(65536), b""))
        arguments, directory, environment = marshal.loads(asked)
        os.chdir(directory)
        os.environ.clear()
        os.environ.update(environment)
        # As Python opens them, unbuffered, at its start: what they lead to is not what it was then.
        sys.stdin = os.fdopen(0)
        sys.stdout, sys.stderr = (
            io.TextIOWrapper(io.FileIO(number, "w"), errors=errors, write_through=True)
            for number, errors in ((1, "strict"), (2, "backslashreplace"))
        )
        sys.argv = ["penstock", *arguments]
        import_module("penstock.cli.main").main()
    except SystemExit as end:
        status = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        connection.sendall(bytes([status]))
        os._exit(0)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
