"""How long a table keeps what it no longer needs: durations among its properties, as ``interval 30 days``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from penstock.errors import InvalidRequest

DAY_MS: Final = 24 * 60 * 60 * 1000

LOG_RETENTION: Final = "delta.logRetentionDuration"
TOMBSTONE_RETENTION: Final = "delta.deletedFileRetentionDuration"
TRANSACTION_RETENTION: Final = "delta.setTransactionRetentionDuration"

_DEFAULTS_MS: Final[Mapping[str, int | None]] = {
    LOG_RETENTION: 30 * DAY_MS,
    TOMBSTONE_RETENTION: 7 * DAY_MS,
    TRANSACTION_RETENTION: None,
}
_UNITS_MS: Final = {
    "microsecond": 0.001,
    "millisecond": 1,
    "second": 1000,
    "minute": 60 * 1000,
    "hour": 60 * 60 * 1000,
    "day": DAY_MS,
    "week": 7 * DAY_MS,
}
_PART: Final = r"(\d{1,12})\s+(" + "|".join(_UNITS_MS) + ")s?"
_INTERVAL: Final = re.compile(rf"\s*(?:interval\s+)?({_PART}(?:\s+{_PART})*)\s*", re.IGNORECASE)


def duration_ms(properties: Mapping[str, str], name: str) -> int | None:
    """How long one of the retentions is, ``None`` for ever. ``InvalidRequest`` if it cannot be understood.

    Nothing is assumed in that case: who would delete must not guess.
    """
    text = properties.get(name)
    if text is None:
        return _DEFAULTS_MS[name]
    match = _INTERVAL.fullmatch(text)
    if match is None:
        raise InvalidRequest(
            f"the property {name} = {text!r} is not a duration\n  Set it to a number of weeks, days, hours, "
            "minutes or seconds, as in 'interval 30 days'.",
            property=name,
        )
    parts = re.findall(_PART, match[1], re.IGNORECASE)
    return int(sum(int(count) * _UNITS_MS[unit.lower()] for count, unit in parts))
