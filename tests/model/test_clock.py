"""Times: stored as microseconds, shown as what programs hold."""

from __future__ import annotations

from datetime import datetime

import pytest

from penstock.errors import InvalidName
from penstock.model.clock import TIME_MAX_US, TIME_MIN_US, to_microseconds, to_utc_datetime
from penstock.model.commits import Commit
from penstock.model.names import parse_time
from penstock.model.objects import EMPTY_ROOT, CommitObject


@pytest.mark.parametrize(
    "time_us", [0, 1, -1, TIME_MIN_US, TIME_MAX_US, TIME_MAX_US - 1, 1_793_491_200_123_457]
)
def test_a_time_is_shown_to_the_microsecond(time_us: int) -> None:
    assert to_microseconds(to_utc_datetime(time_us)) == time_us


@pytest.mark.parametrize(
    ("stored_us", "shown"),
    [(10**18, to_utc_datetime(TIME_MAX_US)), (-(10**18), to_utc_datetime(TIME_MIN_US))],
)
def test_a_commit_of_the_first_release_with_a_time_that_nobody_can_hold_is_shown(
    stored_us: int, shown: datetime
) -> None:
    stored = CommitObject(root=EMPTY_ROOT, author_time_us=stored_us)
    assert Commit.from_stored(bytes(32), stored).author_time == shown


@pytest.mark.parametrize("beyond_us", [TIME_MAX_US + 1, 2**62, TIME_MIN_US - 1, -(2**62)])
def test_a_stored_time_beyond_all_years_is_the_nearest_that_can_be_held(beyond_us: int) -> None:
    assert to_utc_datetime(beyond_us) == to_utc_datetime(TIME_MAX_US if beyond_us > 0 else TIME_MIN_US)


@pytest.mark.parametrize("given", ["99999999999999999999", str(TIME_MAX_US // 1000 + 1)])
def test_a_given_time_beyond_all_years_is_refused(given: str) -> None:
    with pytest.raises(InvalidName, match="years 1 to 9999"):
        parse_time(given)
