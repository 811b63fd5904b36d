"""A running Spark with S3, which takes one step after the other."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.interop import installed

ROOT = Path(__file__).parents[3]
STOPPING_MAX_S = 30.0


class S3Spark:
    """Spark, in a process of its own. What opens the bucket is in the environment."""

    def __init__(self, lake: Path, endpoint: str, directory: Path) -> None:
        jars = ",".join(map(str, sorted(installed.java_libraries("s3a").glob("*.jar"))))
        self._log = directory / "spark-log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.s3.program", lake, endpoint, jars],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=directory,
                env={**os.environ, "PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1", "TZ": "UTC"},
                text=True,
            )
        assert self._line() == "ready\n"

    def do(self, step: str) -> Any:
        """What a step comes to."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{step}\n")
        self._process.stdin.flush()
        return json.loads(self._line())

    def stop(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(STOPPING_MAX_S)
        finally:
            self._process.kill()
            self._process.wait()
            self._process.stdout.close()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"Spark ended: {self._log.read_text(errors='replace')[-3000:]}"
        return line
