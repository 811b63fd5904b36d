"""SQL over a lake's tables by clients of Spark Connect: the jar and the settings are those of its server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.lake.lake import Lake
from penstock.spark import jar
from tests.remote.serving import serving
from tests.transactions.pipelines import ids


@pytest.mark.verify
@pytest.mark.timeout(300)
def test_clients_of_spark_connect_have_names_branches_and_transactions(lake: Lake) -> None:
    pytest.importorskip("grpc", reason="Spark Connect needs grpcio, which is not among the requirements")
    program = Path(__file__).with_name("connect_sql_program.py")
    # Only so does Spark take a free port for the server and its client.
    testing = {"SPARK_TESTING": "1", "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    with serving(lake.catalogue) as server:
        done = subprocess.run(
            [sys.executable, str(program), str(jar.path()), server.url],
            env=os.environ | testing,
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    told = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert told["main"] == "[(2,)]"
    assert told["dev"] == "[(2,), (3,)]"
    assert told["merged"] == "c"
    assert told["tables"] == told["listed"] == "['delta', 'files', 't']"
    assert (told["outside"], told["after"]) == ("5", "6")
    assert "use PySpark" in told["refused"]
    assert "none" in told["absent"]
    assert ids(lake, "s.t") == [1, 2, 3, 4, 5, 9]
    assert lake.table("s.files").type == "FILES_TABLE"
