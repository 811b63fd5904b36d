"""A driver of Spark's without Python: an answer that is not the lake's is asked for again."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from penstock.spark import jar
from tests.remote.scripted import Said, scripted

pytestmark = pytest.mark.verify

PAGE = Said(200, b"<html><title>Sign in</title></html>", "text/html")
HALF = Said(200, b'{"is_ours":')
FAULT = Said(500, b'{"error":{"code":"administrator","message":"internal error of the server","details":{}}}')
YES = Said(200, b'{"is_ours":true}')


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command that asks a server as the jar does."""
    import pyspark

    compiler, ours = shutil.which("javac"), jar.find_jar()
    if compiler is None or ours is None:
        pytest.skip("there is no Java compiler, or no jar that one has made")
    folder = tmp_path_factory.mktemp("classes")
    theirs = Path(pyspark.__file__).parent / "jars"
    path = ":".join([str(ours), str(folder), str(theirs / "*")])
    source = Path(__file__).with_name("AskingServer.java")
    subprocess.run([compiler, "-cp", path, "-d", str(folder), str(source)], check=True)
    return ["java", "-cp", path, "io.penstock.spark.AskingServer"]


@pytest.mark.parametrize("said", [PAGE, HALF, FAULT], ids=["a page", "half of it", "its own fault"])
def test_an_answer_that_is_not_the_lakes_is_asked_for_again(asking: list[str], said: Said) -> None:
    with scripted(said, YES) as server:
        told = subprocess.run([*asking, server.url, "{}"], check=True, capture_output=True, text=True)
    assert told.stdout.strip() == YES.body.decode()
    assert len(server.asked) == 2


def test_a_driver_that_is_never_answered_by_the_lake_says_so(asking: list[str]) -> None:
    with scripted(PAGE) as server:
        told = subprocess.run([*asking, server.url, "{}"], check=True, capture_output=True, text=True)
    assert told.stdout.startswith(f"refused: what answers at {server.url}/api/penstock/v1/spark-writes/check")
    assert len(server.asked) == 6
