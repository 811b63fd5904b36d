"""Times: stored as microseconds, shown as what programs hold."""

from __future__ import annotations

from datetime import datetime

import pytest

from penstock.model.clock import TIME_MAX_US, TIME_MIN_US, microseconds, utc
from penstock.model.commits import Commit
from penstock.model.objects import EMPTY_ROOT, CommitObject


@pytest.mark.parametrize(
    "time_us", [0, 1, -1, TIME_MIN_US, TIME_MAX_US, TIME_MAX_US - 1, 1_793_491_200_123_457]
)
def test_a_time_is_shown_to_the_microsecond(time_us: int) -> None:
    assert microseconds(utc(time_us)) == time_us


@pytest.mark.parametrize(("stored_us", "shown"), [(10**18, utc(TIME_MAX_US)), (-(10**18), utc(TIME_MIN_US))])
def test_a_commit_of_the_first_release_with_a_time_that_nobody_can_hold_is_shown(
    stored_us: int, shown: datetime
) -> None:
    stored = CommitObject(root=EMPTY_ROOT, author_time_us=stored_us)
    assert Commit.of(bytes(32), stored).author_time == shown
