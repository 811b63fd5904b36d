"""Two operations on a table at once, in a lake and with Delta Spark: pairs come out as the reference says."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.delta_pairs import OPERATIONS, PAIRS, Outcome
from tests.interop.delta.pairs import OPERATIONS as DONE
from tests.interop.delta.pairs import LakePairs, SparkPairs, find_order
from tests.interop.delta.session import DeltaSpark

pytestmark = pytest.mark.timeout(600)

NAMES = [*OPERATIONS]
SHARE = {
    (first, NAMES[(number * step + shift) % len(NAMES)])
    for number, first in enumerate(NAMES)
    for step, shift in ((5, 3), (7, 4))
}
"""The pairs that Delta Spark does in `make verify`: every operation twice as the first one."""
LONG, SHARED = pytest.mark.reliability, pytest.mark.share
SPARK_CASES = [pytest.param(*pair, marks=[LONG, SHARED] if pair in SHARE else LONG) for pair in PAIRS]


@pytest.fixture(scope="module")
def spark_pairs(spark: DeltaSpark, tmp_path_factory: pytest.TempPathFactory) -> SparkPairs:
    return SparkPairs(spark, tmp_path_factory.mktemp("pairs"), has_vectors=False)


@pytest.fixture(scope="module")
def lake_of_orders(tmp_path_factory: pytest.TempPathFactory) -> LakePairs:
    """Where operations are done one after the other."""
    return LakePairs(tmp_path_factory.mktemp("orders"), has_vectors=False)


def test_the_reference_has_what_is_done() -> None:
    assert [*DONE] == NAMES
    assert PAIRS.keys() == {(first, second) for first in NAMES for second in NAMES}
    for names in zip(*SHARE, strict=True):
        assert {*names} == {*NAMES}


@pytest.mark.parametrize("has_vectors", [False, True])
@pytest.mark.parametrize("first", NAMES)
def test_what_becomes_of_a_pair_in_a_lake(tmp_path: Path, first: str, has_vectors: bool) -> None:
    lakes = LakePairs(tmp_path, has_vectors)
    for second in NAMES:
        race, pair = lakes.race(first, second), PAIRS[first, second]
        assert (find_order(lakes, first, second, race), race.why) == (pair.lake, race.why), second
        if race.why:
            assert "why" in race.why
            assert "what to do" in race.why
        else:
            assert race.is_done_again is pair.is_done_again, second


@pytest.mark.parametrize("first", ["delete", "update", "merge"])
def test_a_change_of_a_serializable_table_looks_at_rows_that_came_meanwhile(
    tmp_path: Path, first: str
) -> None:
    lakes = LakePairs(tmp_path, has_vectors=False, isolation="Serializable")
    race = lakes.race(first, "append")
    assert find_order(lakes, first, "append", race) is Outcome.AFTER
    assert race.is_done_again


@pytest.mark.parametrize(("first", "second"), SPARK_CASES)
def test_what_becomes_of_a_pair_with_delta_spark(
    spark_pairs: SparkPairs, lake_of_orders: LakePairs, first: str, second: str
) -> None:
    race = spark_pairs.race(first, second)
    assert find_order(lake_of_orders, first, second, race) == PAIRS[first, second].spark, race
    if PAIRS[first, second].spark is Outcome.REFUSED:
        assert "Concurrent" in race.why or "MetadataChanged" in race.why
