"""The program ``penstock``, kept warm, for documents that call it a hundred times.

Most of what a short command costs is to load Python and its modules. Here one process has them loaded, for
all documents, and forks for each call. ``penstock`` on a document's PATH is a few lines that hand over their
arguments, directory, environment and open files, and end as the fork ended: so pipes, redirections and exit
statuses are those of a program of its own. ``tests/cli/test_program.py`` starts the real one.
"""

import atexit
import io
import marshal
import os
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

PRELOADED = ("pyarrow.parquet", "pyarrow.dataset", "pandas", "duckdb", "lance_namespace")
"""What commands load beside their own modules. Lance is left out, which does not stand a fork."""
PARENT_LOOK_S = 5.0

CALLER = """\
#!{python} -IS
import marshal, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    socket.send_fds(server, [b"."], [0, 1, 2])
    server.sendall(marshal.dumps(({group}, sys.argv[1:], os.getcwd(), dict(os.environ))))
    server.shutdown(socket.SHUT_WR)
    status = server.recv(1)
sys.exit(status[0] if status else "penstock ended without an exit status")
"""


def install(folder: Path, group: int) -> None:
    """Put a ``penstock`` into ``folder``. What it starts belongs to a process group, and ends with that."""
    address = _server()
    caller = folder / "penstock"
    caller.write_text(CALLER.format(python=sys.executable, address=address, group=group))
    caller.chmod(0o755)


@cache
def _server() -> str:
    """Where the process listens that answers the callers. It ends with this one.

    It has the environment of the first document; each fork gets its caller's.
    """
    folder = tempfile.TemporaryDirectory()
    address = str(Path(folder.name) / "socket")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()  # before the process starts, so that a caller waits for it
        process = subprocess.Popen(
            [sys.executable, "-P", __file__, str(listener.fileno())],
            stdin=subprocess.DEVNULL,
            pass_fds=[listener.fileno()],
        )
    atexit.register(_end, process, folder)
    return address


def _end(process: subprocess.Popen[bytes], folder: tempfile.TemporaryDirectory[str]) -> None:
    process.kill()
    process.wait()
    folder.cleanup()


def serve(listener: socket.socket) -> None:
    """Fork for each call, for as long as the process is there that started this one."""
    parent = os.getppid()
    root = import_module("penstock.cli.root")
    for module in sorted({command.path.partition(":")[0] for command in root.COMMANDS.values()}):
        import_module(module)
    for module in PRELOADED:
        if find_spec(module.partition(".")[0]) is not None:
            import_module(module)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the forks
    listener.settimeout(PARENT_LOOK_S)
    while os.getppid() == parent:
        try:
            connection, _ = listener.accept()
        except TimeoutError:
            continue
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
        group, arguments, directory, environment = marshal.loads(asked)
        os.setpgid(0, group)
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
