"""The programs in tests/interop/java, which `make interop` compiles."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop import installed
from tests.servers.process import Missing


def java_program(name: str, *arguments: str, directory: Path) -> str:
    """What a program prints; the test fails with the program, and is skipped where it cannot be had."""
    try:
        java, libraries, classes = (
            installed.java(),
            installed.java_libraries("java"),
            installed.java_classes(),
        )
    except Missing as missing:
        pytest.skip(str(missing))
    options = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m"]
    ended = installed.run(
        [java, *options, "-cp", f"{classes}:{libraries}/*", name, *arguments], {}, directory
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout
