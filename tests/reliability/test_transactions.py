"""Pipelines over tables of three formats, in processes that meet and are killed: every history can have been.

Each history is a lake of its own, on which two to four processes run transactions with one isolation and one
policy, while readers look; one or two of them kill themselves on the way. Others find out what became of what
they were at. Then the checker is asked, and what is left in storage is looked at.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from itertools import cycle
from pathlib import Path

import pytest

import penstock
from penstock.errors import ConflictError
from penstock.kernel import merge
from penstock.model.transactions import Isolation, Policy
from tests.chance import RecordCounts
from tests.reliability.transactions.anomalies import Kind
from tests.reliability.transactions.checker import check
from tests.reliability.transactions.crew import Crew
from tests.reliability.transactions.histories import first_lists, look_now, looks_of, run_history
from tests.reliability.transactions.history import History
from tests.reliability.transactions.journal import Journal, lines_of, transactions_of
from tests.reliability.transactions.pipeline import Pipeline, settled
from tests.reliability.transactions.points import At
from tests.reliability.transactions.tables import FORMATS, NAMESPACE

pytest.importorskip("lance")
pytest.importorskip("deltalake")

PROCESSES_MAX = 4
FEW = (At.IN_DATA, At.AFTER_MERGE, At.IN_PUBLISHING)
HISTORIES = 96
"""In a turn: eight for every point at which a process dies."""


def run_histories(tmp_path: Path, seeds: range, points: Sequence[At]) -> Counter[str]:
    """Histories one after the other, killed at some points in turn."""
    happened: Counter[str] = Counter()
    with Crew(PROCESSES_MAX) as crew:
        for seed, kill_at in zip(seeds, cycle(points), strict=False):
            place = tmp_path / f"lake{seed}"
            happened += run_history(crew, place, seed, kill_at=kill_at)
            shutil.rmtree(place)
    return happened


@pytest.mark.verify
def test_no_history_of_pipelines_that_meet_and_die_shows_an_anomaly(tmp_path: Path, seed: int) -> None:
    happened = run_histories(tmp_path, range(seed, seed + len(FEW)), FEW)
    for what in ("committed", "aborted", "landed in delta", "landed in lance", "landed in files"):
        assert happened[what], f"there was none that {what}"


def meeting(place: Path, isolation: Isolation, read: tuple[str, str], written: tuple[str, str]) -> History:
    """Two transactions that have begun and read before either of them lands."""
    path = place.with_suffix(".journal")
    journal, chance = Journal(path), random.Random(0)
    with penstock.open(place) as lake:
        lake.branch().create_namespace(NAMESPACE)
        first = first_lists(lake, sorted({*read, *written}))
        begun = []
        for number, (name, other) in enumerate(zip(read, written, strict=True)):
            tx = lake.transaction("main", isolation=isolation)
            journal.begun(tx.id, isolation, Policy.REBASE)
            pipeline = Pipeline(lake, journal, chance, isolation, Policy.REBASE, f"w{number}")
            pipeline.read(tx, name)
            pipeline.write(tx, other, (f"<w{number}-0>",), mode="append")
            begun.append(tx)
        for tx in begun:
            with suppress(ConflictError):
                tx.land()
            journal.ended(tx.id, settled(lake, tx.id))
        looks = looks_of(lake, [look_now(lake)])
    journal.close()
    return History(transactions=(first, *transactions_of(lines_of(path))), looks=tuple(looks))


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("isolation", Isolation)
def test_a_kernel_that_forgets_what_was_read_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, isolation: Isolation, kind: str
) -> None:
    """Else histories without an anomaly would prove nothing."""
    one, other = f"{kind}0", f"{kind}1"
    if isolation is Isolation.SNAPSHOT:
        read, written, expected = (one, one), (one, one), Kind.LOST_UPDATE
    else:
        read, written, expected = (one, other), (other, one), Kind.G2_ITEM
    assert not check(meeting(tmp_path / "sound", isolation, read, written))
    monkeypatch.setattr(merge, "check_reads", lambda *_: None)
    (found,) = check(meeting(tmp_path / "broken", isolation, read, written))
    assert found.kind is expected


@pytest.mark.reliability
@pytest.mark.parametrize("turn", range(2))
def test_no_history_of_many_shows_an_anomaly(
    tmp_path: Path, seed: int, turn: int, record_counts: RecordCounts
) -> None:
    start = seed + turn * HISTORIES
    happened = run_histories(tmp_path, range(start, start + HISTORIES), [*At])
    record_counts(happened)
    for at in At:
        assert happened[f"killed {at}"], f"nobody died {at}"
