"""Times and sizes as people say them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

_UNITS: Final = {"s": 1, "min": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_DURATION: Final = re.compile(r"(\d{1,6})\s*(s|min|h|d|w)(?:\s+ago)?")


def format_age(then: datetime, now: datetime) -> str:
    """How long ago something was; its date if that is more than two weeks."""
    seconds = int((now - then).total_seconds())
    if seconds < -60:
        return f"{then:%Y-%m-%d %H:%M} UTC"  # the future: another machine's clock is ahead
    if seconds < 2:
        return "just now"
    if seconds < 60:
        return f"{seconds} s ago"
    if seconds < 3600:
        return f"{seconds // 60} min ago"
    if seconds < 86_400:
        return f"{seconds // 3600} h ago"
    if seconds < 14 * 86_400:
        days = seconds // 86_400
        return f"{days} day{'s' if days > 1 else ''} ago"
    return f"{then:%Y-%m-%d}"


def format_iso_time(moment: datetime) -> str:
    """A moment in a form that revisions and filters accept, to the microsecond."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def parse_moment(text: str, now: datetime) -> str | datetime:
    """``2h`` or ``3 d ago`` as the moment it names; anything else as it is, for the lake to read."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        return text
    return now - timedelta(seconds=int(match[1]) * _UNITS[match[2]])


def format_size(count_bytes: float) -> str:
    """A number of bytes."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count_bytes < 1024:
            return f"{count_bytes:.0f} bytes" if unit == "bytes" else f"{count_bytes:.1f} {unit}"
        count_bytes /= 1024
    return f"{count_bytes:.1f} TiB"


def format_count(count: int, thing: str, things: str | None = None) -> str:
    """``1 branch``, ``2 branches``."""
    return f"{count:,} {thing if count == 1 else things or thing + 's'}"
