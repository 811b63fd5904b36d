"""Random lives of a whole lake, held against sets of rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chance import RecordCounts
from tests.product.machine import Machine
from tests.product.readers import Readers

# Threads of processes that died end by what they died of.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")


@pytest.fixture(scope="module")
def readers() -> Iterator[Readers]:
    readers = Readers()
    yield readers
    readers.close()


def run(place: Path, readers: Readers, seed: int, steps: int) -> Counter[str]:
    machine = Machine(place, readers, seed)
    for number in range(1, steps + 1):
        machine.step()
        if number % 10 == 0:
            machine.check_everywhere()
    machine.end()
    return machine.counts


@pytest.mark.parametrize("number", [0, *(pytest.param(one, marks=pytest.mark.verify) for one in (1, 2, 3))])
def test_a_random_life_of_a_lake_ends_as_sets_of_rows_say(
    tmp_path: Path, readers: Readers, number: int
) -> None:
    run(tmp_path / "lake", readers, 20261117 + number, 40)


@pytest.mark.reliability
@pytest.mark.parametrize("turn", range(5))
def test_long_random_lives_of_a_lake_end_as_sets_of_rows_say(
    tmp_path: Path, readers: Readers, seed: int, turn: int, record_counts: RecordCounts
) -> None:
    counts = Counter[str]()
    for number in range(4 * turn, 4 * turn + 4):
        counts.update(run(tmp_path / f"lake{number}", readers, seed + number, 120))
    record_counts(counts)
