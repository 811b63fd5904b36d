"""A running Spark with Delta, which carries out one statement after the other."""

from __future__ import annotations

import contextlib
import json
import subprocess
from pathlib import Path
from typing import Any

from tests.interop import installed
from tests.servers.s3 import S3Place

PROGRAM = Path(__file__).with_name("program.py")
STOPPING_MAX_S = 30.0


class SparkError(Exception):
    """Spark refused a statement."""


class DeltaSpark:
    """Spark, in a process of its own."""

    def __init__(self, directory: Path) -> None:
        java = installed.java()
        python = installed.python_environment("spark") / "python"
        jars = sorted(installed.java_libraries("delta").glob("*.jar"))
        self.directory = directory
        self.log = (directory / "log").open("w")
        self.process = subprocess.Popen(
            [python, PROGRAM, ",".join(map(str, jars))],
            env={
                "PATH": f"{java.parent}:/usr/bin:/bin",
                "LC_ALL": "C.UTF-8",
                "TZ": "UTC",
                "HOME": str(directory),
            },
            cwd=directory,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
        )

    def sql(self, statement: str) -> list[list[Any]]:
        """The rows of a statement; ``SparkError`` if Spark refuses it."""
        answer = self._ask(statement)
        if "error" in answer:
            raise SparkError(answer["error"])
        rows: list[list[Any]] = answer["rows"]
        return rows

    def race(self, first: str, second: str) -> tuple[str, str]:
        """What becomes of a statement if another one runs right before it commits: why Spark refuses each of
        them, or nothing. ``SparkError`` if the first one has nothing to commit."""
        answer = self._ask([first, second])
        if "second" not in answer:
            raise SparkError(answer["first"].get("error", "the first statement did not commit"))
        return answer["first"].get("error", ""), answer["second"].get("error", "")

    def _ask(self, asked: object) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, f"Spark ended: {(self.directory / 'log').read_text()[-3000:]}"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def use(self, bucket: S3Place) -> None:
        """Say how to get into a bucket."""
        settings = {
            "fs.s3a.endpoint": bucket.endpoint,
            "fs.s3a.endpoint.region": bucket.region,
            "fs.s3a.access.key": bucket.access_key,
            "fs.s3a.secret.key": bucket.secret_key,
        }
        for name, value in settings.items():
            if value is not None:
                self.sql(f"SET `{name}`=`{value}`")

    def stop(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(STOPPING_MAX_S)
        finally:
            self.process.kill()
            self.process.wait()
            self.process.stdout.close()
            self.log.close()
