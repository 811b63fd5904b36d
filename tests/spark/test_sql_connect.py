"""SQL over a lake's tables by clients of Spark Connect: the jar and the settings are those of its server."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from penstock.lake.lake import Lake
from penstock.spark import jar
from tests.remote.serving import serving
from tests.transactions.pipelines import ids


def run_program(lake: Lake, *given: str) -> dict[str, str]:
    """What the program prints, by the first word of each line."""
    pytest.importorskip("grpc", reason="Spark Connect needs grpcio, which is not among the requirements")
    program = Path(__file__).with_name("connect_sql_program.py")
    # Only so does Spark take a free port for the server and its client.
    testing = {"SPARK_TESTING": "1", "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    with serving(lake.catalogue) as server:
        done = subprocess.run(
            [sys.executable, str(program), str(jar.find_jar()), server.url, *given],
            env=os.environ | testing,
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(line.split(" ", 1) for line in done.stdout.splitlines())


@pytest.mark.verify
@pytest.mark.timeout(300)
def test_clients_of_spark_connect_have_names_branches_and_transactions(lake: Lake) -> None:
    told = run_program(lake)
    assert told["main"] == "[(2,)]"
    assert told["dev"] == "[(2,), (3,)]"
    assert told["merged"] == "c"
    assert told["tables"] == told["listed"] == "['delta', 'files', 't']"
    assert told["view"] == "[(4,), (5,)]"
    assert (told["outside"], told["after"]) == ("5", "6")
    assert "use PySpark" in told["refused"]
    assert "none" in told["absent"]
    assert ids(lake, "s.t") == [1, 2, 3, 4, 5, 9]
    assert lake.table("s.files").type == "FILES_TABLE"


@pytest.mark.verify
@pytest.mark.timeout(300)
def test_sessions_of_spark_connect_change_rows_by_the_python_of_their_server(lake: Lake) -> None:
    told = run_program(lake, sys.executable)
    assert told["updated"] == "[(2,)]"
    assert told["merged_rows"] == "[(1, 0, 1, 0)]"
    # Each statement is carried out once, though its client asks for its rows.
    assert told["once"] == "['MERGE', 'UPDATE', 'MERGE BRANCH']"
    assert told["deleted"] == "[[(1,)], [(1,)]]"
    assert told["inside"] == "[2, 5]"
    assert told["landed"] == "[(4,)]"
    assert ids(lake, "s.t") == [2, 4, 5, 9]
    assert ids(lake, "s.t", "dev") == [1, 2]
    # Both sessions had one process, which is gone with the server.
    (process,) = told["processes"].split()
    with suppress(ProcessLookupError):
        descriptor = os.pidfd_open(int(process))
        readable, _, _ = select.select([descriptor], [], [], 60)
        os.close(descriptor)
        assert readable
