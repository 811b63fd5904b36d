"""The servers that come as Java libraries, as `make interop` has laid them out."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

from tests.servers.process import Missing, Process, new_directory, start

LIBRARIES = Path(__file__).parents[2] / "build" / "servers" / "java"


def launch(name: str, port: int) -> Process:
    """Start one of the servers that `Launcher.java` knows."""
    java = shutil.which("java")
    if java is None or not (LIBRARIES / "Launcher.class").exists():
        raise Missing(f"the {name} server is not installed: run `make interop`")
    return start(
        [
            java,
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            "-Xmx1g",
            f"-Djava.library.path={LIBRARIES}",
            "-cp",
            f"{LIBRARIES}/*:{LIBRARIES}",
            "Launcher",
            name,
            str(port),
        ],
        new_directory(),
        stop_signal=signal.SIGKILL,
        environment={"LC_ALL": "C.UTF-8", "DDB_LOCAL_TELEMETRY": "0"},
    )
