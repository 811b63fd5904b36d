"""A driver of Spark is killed in a transaction over tables of three formats: all of it lands, or nothing."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path
from uuid import UUID

import msgspec
import pytest

import penstock
from penstock.errors import InvalidRequest
from tests.reliability.transactions.checker import check
from tests.reliability.transactions.crew import ROOT
from tests.reliability.transactions.histories import first_lists, look_now, looks_of
from tests.reliability.transactions.history import History, Outcome
from tests.reliability.transactions.journal import Journal, lines_of, transactions_of
from tests.reliability.transactions.pipeline import settled
from tests.reliability.transactions.points import At
from tests.reliability.transactions.remains import check_remains
from tests.reliability.transactions.spark_worker import SparkTask
from tests.reliability.transactions.tables import LISTS, NAMESPACE
from tests.reliability.transactions.worker import SETTINGS

pytest.importorskip("lance")
pytest.importorskip("deltalake")
pytest.importorskip("pyspark")

WORKER = "tests.reliability.transactions.spark_worker"
WAIT_MAX_S = 240.0
LANDS = {
    At.AFTER_MERGE: Outcome.COMMITTED,
    At.IN_PUBLISHING: Outcome.COMMITTED,
    At.BEFORE_ANSWER: Outcome.COMMITTED,
    At.BEFORE_MERGE: Outcome.COMMITTED,  # it was sent, so whoever settles it sends it once more
    At.IN_MERGE: Outcome.COMMITTED,
}
"""What it must come to; before that, it comes to nothing."""


@pytest.fixture(autouse=True)
def _java() -> None:
    from penstock.spark.java import find_java

    try:
        find_java()
    except InvalidRequest as missing:
        pytest.skip(missing.message)


def run_driver(tmp_path: Path, seed: int, at: At) -> None:
    """A history with one driver, which is killed."""
    chance, place = random.Random(seed), tmp_path / "lake"
    told = f"seed {seed}, killed {at}"
    lists = list(LISTS)
    chance.shuffle(lists)
    task = SparkTask(
        lake=str(place),
        journal=str(tmp_path / "driver.journal"),
        scratch=str(tmp_path / "scratch"),
        transaction=UUID(int=chance.getrandbits(128)).hex,
        name="w0",
        lists=tuple(sorted(lists[:4])),
        kill_at=at,
        step=chance.randrange(4),
    )
    with penstock.open(place, settings=SETTINGS) as lake:
        lake.branch().create_namespace(NAMESPACE)
        first = first_lists(lake, LISTS)
    ended = subprocess.run(
        [sys.executable, "-m", WORKER, msgspec.json.encode(task).decode()],
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=WAIT_MAX_S,
    )
    assert ended.returncode == -signal.SIGKILL, f"{told}\n{ended.stderr[-5000:]}"
    with penstock.open(place, settings=SETTINGS) as lake:
        outcome = settled(lake, task.transaction)
        assert outcome is LANDS.get(at, Outcome.ABORTED), told
        heir = Journal(task.journal)
        heir.ended(task.transaction, outcome)
        heir.close()
        done = transactions_of(lines_of(Path(task.journal)))
        history = History(transactions=(first, *done), looks=tuple(looks_of(lake, [look_now(lake)])))
    anomalies = check(history)
    assert not anomalies, "\n".join([told, *map(str, anomalies)])
    check_remains(place, history, told)


@pytest.mark.verify
def test_a_driver_that_dies_in_the_rows_of_a_write_leaves_nothing(tmp_path: Path, seed: int) -> None:
    run_driver(tmp_path, seed, At.IN_DATA)


@pytest.mark.reliability
@pytest.mark.parametrize("at", At, ids=str)
@pytest.mark.parametrize("turn", [0, 1])
def test_a_driver_that_dies_leaves_all_or_nothing(tmp_path: Path, seed: int, at: At, turn: int) -> None:
    run_driver(tmp_path, seed + turn, at)
