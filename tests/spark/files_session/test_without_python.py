"""A Spark driver without Python writes to tables of a lake: a server decides what its Python would."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import penstock
from penstock.model.jobs import JobState
from penstock.spark import jar
from tests.interop.penstock_server import serving
from tests.spark.files.cases import ids, in_pool, jobs
from tests.spark.files_session.losing import losing

PROGRAM = Path(__file__).parent / "java" / "SessionWrites.java"
OPENED = (
    *("java.io", "java.lang", "java.lang.invoke", "java.lang.reflect", "java.net", "java.nio", "java.util"),
    *("java.util.concurrent", "java.util.concurrent.atomic", "sun.nio.ch", "sun.nio.cs", "sun.util.calendar"),
)
"""Packages of Java's that Spark looks into."""
RUN_MAX_S = 120


@pytest.mark.verify
def test_its_jobs_commit_once_are_refused_and_survive_lost_answers(tmp_path: Path) -> None:
    program = compiled(tmp_path)
    lake = tmp_path / "lake"
    penstock.open(lake).close()
    with (
        serving(str(lake)) as server,
        # Of each step one answer does not come: that it was done is not known to the driver.
        losing(server.uri, {"check", "begin", "commit", "read"}) as way,
    ):
        told = run(
            [*program, way.uri, str(tmp_path / "nowhere")],
            # The second is the first one, started again; the third and the fourth find files.
            ["append,append,one", "append,append,one", "append,error,two", "errorifexists,ignore,three"],
            tmp_path,
        )
        assert way.asked[:7] == ["check", "check", "begin", "begin", "commit", "commit", "check"]
    assert told[:2] == ["append,append,one: done"] * 2
    assert told[2].startswith(
        "append,error,two: JobRefused cannot commit: 1 conflict|  'raw.events' already has files"
    )
    assert told[3:] == ["errorifexists,ignore,three: done", "read: 3"]
    with penstock.open(lake) as opened:
        assert ids(opened, "raw.events") == [0, 1, 2]
        assert len(in_pool(opened)) == 1
        ended = {one.what: one.state for one in jobs(opened)}
        assert ended["append parquet files"] is JobState.COMMITTED
        assert ended["error parquet files"] is JobState.ABORTED
        assert [one.message for one in opened.log()] == ["append 1 file to raw.events"]


def compiled(directory: Path) -> list[str]:
    """The command that runs the program, with Spark's classes and Penstock's."""
    pyspark = pytest.importorskip("pyspark")
    javac, java, classes = shutil.which("javac"), shutil.which("java"), jar.find_jar()
    if javac is None or java is None or classes is None:
        pytest.skip("there is no Java compiler, or no jar of Penstock's")
    spark = f"{Path(pyspark.__file__).parent}/jars/*"
    quick = ["-J-XX:TieredStopAtLevel=1", "-proc:none"]
    subprocess.run(
        [javac, *quick, "-cp", spark, "-d", str(directory), str(PROGRAM)], check=True, timeout=RUN_MAX_S
    )
    opened = [f"--add-opens=java.base/{one}=ALL-UNNAMED" for one in OPENED]
    options = [
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        "-Xmx512m",
        "--add-modules=jdk.incubator.vector",
    ]
    return [java, *options, *opened, "-cp", f"{directory}:{classes}:{spark}", PROGRAM.stem]


def run(command: list[str], writes: list[str], directory: Path) -> list[str]:
    """What the program prints of each write, and of the read after them."""
    ended = subprocess.run(
        [*command, *writes], capture_output=True, text=True, cwd=directory, timeout=RUN_MAX_S, check=False
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    return [line for line in ended.stdout.splitlines() if line.partition(": ")[0] in (*writes, "read")]
