"""Durations among the properties of a table."""

from __future__ import annotations

import pytest

from penstock.errors import InvalidRequest
from penstock.formats.delta.protocol.durations import (
    DAY_MS,
    LOG_RETENTION,
    TOMBSTONE_RETENTION,
    TRANSACTION_RETENTION,
    duration_ms,
)


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("interval 30 days", 30 * DAY_MS),
        ("INTERVAL 1 Week", 7 * DAY_MS),
        ("2 weeks 1 day", 15 * DAY_MS),
        (" interval  1 day  2 hours 3 minutes 4 seconds 5 milliseconds ", DAY_MS + 7_384_005),
        ("interval 2500 microseconds", 2),
        ("interval 0 hours", 0),
    ],
)
def test_a_duration_is_the_sum_of_its_parts(text: str, expected_ms: int) -> None:
    assert duration_ms({LOG_RETENTION: text}, LOG_RETENTION) == expected_ms


@pytest.mark.parametrize(
    "text", ["", "interval", "30", "interval 1 month", "-1 days", "1 day ago", "1.5 days"]
)
def test_what_is_no_duration_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"delta\.logRetentionDuration = .* is not a duration"):
        duration_ms({LOG_RETENTION: text}, LOG_RETENTION)


def test_each_retention_has_what_the_protocol_says_where_the_table_says_nothing() -> None:
    assert duration_ms({}, LOG_RETENTION) == 30 * DAY_MS
    assert duration_ms({}, TOMBSTONE_RETENTION) == 7 * DAY_MS
    assert duration_ms({}, TRANSACTION_RETENTION) is None
