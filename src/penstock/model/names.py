"""Names of references, and revisions: names with a way to walk from them.

``main``, ``main@<commit id>``, ``<commit id>``, then any number of ``~N`` (N-th predecessor), ``^N`` (N-th
parent) and ``*T`` (the newest commit not after time T), as in ``main*2026-11-01T00:00:00Z~3^2``.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final, Literal

import msgspec

from penstock.errors import InvalidName
from penstock.model.clock import TIME_MAX_US, TIME_MIN_US, to_microseconds, to_utc_datetime

NAME_MAX_CHARS: Final = 200
STEPS_MAX: Final = 100
"""Of a walk. Nobody writes that many, and each of them costs reads."""

REVISIONS_MAX: Final = 1_000
"""How many texts are kept with what they mean: most requests name one of a few branches."""

_NAME = re.compile(r"[A-Za-z](?:(?:(?!\.\.)[A-Za-z0-9./_-])*[A-Za-z0-9_-])?")
_HASH = re.compile(r"[0-9a-fA-F]{8,64}")
_AGO = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)([hd])")
_UNITS: Final = {"h": "hours", "d": "days"}
_STEP = re.compile(r"([~^])(\d{0,9})|\*(\d{4}-\d{2}-\d{2}(?:T[0-9:.]+(?:Z|[+-]\d{2}:\d{2})?)?|\d{1,16})")


class Step(msgspec.Struct, frozen=True):
    """One step of a walk: ``~`` and ``^`` count, ``*`` goes back to a time in microseconds."""

    kind: Literal["~", "^", "*"]
    amount: int


class Revision(msgspec.Struct, frozen=True):
    """A parsed revision. Without a name it starts at a commit id, without a commit id at a head.

    ``commit`` is 64 hexadecimal digits, or at least the first 8 of them.
    """

    name: str | None
    commit: str | None
    steps: tuple[Step, ...] = ()


def check_name(name: str) -> str:
    """Return ``name`` if a branch or tag can have it."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidName(
            f"{name!r} cannot be the name of a reference: a name starts with a letter, has letters, digits "
            "and './_-', no '..', and does not end with '.' or '/'"
        )
    if len(name) > NAME_MAX_CHARS:
        raise InvalidName(f"a reference name can have at most {NAME_MAX_CHARS} characters: {name[:40]!r}…")
    if name.upper() in ("HEAD", "DETACHED") or _HASH.fullmatch(name):
        raise InvalidName(
            f"{name!r} cannot be the name of a reference: it could be read as a commit id or a keyword"
        )
    return name


def parse_revision(text: str) -> Revision:
    """Read a revision; whether what it names exists is not asked here."""
    if not isinstance(text, str):
        raise InvalidName(f"a revision must be a string, got {type(text).__name__}")
    return _parse_revision_text(text)


@lru_cache(maxsize=REVISIONS_MAX)
def _parse_revision_text(text: str) -> Revision:
    start = re.search(r"[~^*]", text)
    base, walk = (text[: start.start()], text[start.start() :]) if start else (text, "")
    if "@" in base:
        name, _, commit = base.partition("@")
        return Revision(
            check_name(name) if name else None, _commit_id(commit, text), _parse_steps(walk, text)
        )
    if _HASH.fullmatch(base):
        return Revision(None, _commit_id(base, text), _parse_steps(walk, text))
    return Revision(check_name(base), None, _parse_steps(walk, text))


def parse_time_us(text: str) -> int:
    """Microseconds since 1970 of an ISO date or time (UTC unless it says otherwise) or of milliseconds."""
    if text.isascii() and text.isdecimal():
        return int(text) * 1000
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidName(f"{text!r} is not a date or time; write it like 2026-11-01T00:00:00Z") from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1_000_000)


def parse_time(text: str) -> datetime:
    """The same as a time in UTC, of the years 1 to 9999."""
    time_us = parse_time_us(text)
    if not TIME_MIN_US <= time_us <= TIME_MAX_US:
        raise InvalidName(f"{text!r} is not a time in the years 1 to 9999")
    return to_utc_datetime(time_us)


def parse_moment(when: str | datetime | timedelta, now_us: int) -> datetime:
    """A time, or how long ago it was: `30d` and `12h` as text. A time without a time zone is in UTC."""
    if isinstance(when, datetime):
        return to_utc_datetime(to_microseconds(when))
    if isinstance(when, str) and (ago := _AGO.fullmatch(when.strip())) is not None:
        when = timedelta(**{_UNITS[ago[2]]: float(ago[1])})
    if isinstance(when, timedelta):
        return to_utc_datetime(now_us - when // timedelta(microseconds=1))
    return parse_time(when)


def write_revision_at(name: str, time: str | datetime) -> str:
    """The revision that is a reference as it was at a time; a time without a time zone is in UTC."""
    moment = to_utc_datetime(to_microseconds(time)) if isinstance(time, datetime) else parse_time(time)
    return f"{name}*{moment.isoformat()}"


def _commit_id(text: str, whole: str) -> str:
    if not _HASH.fullmatch(text):
        raise InvalidName(
            f"invalid revision {whole!r}: {text!r} is not a commit id, nor the first 8 or more digits of one"
        )
    return text.lower()


def _parse_steps(walk: str, whole: str) -> tuple[Step, ...]:
    steps, position = [], 0
    while position < len(walk):
        match = _STEP.match(walk, position)
        if not match:
            raise InvalidName(f"invalid revision {whole!r}: {walk[position:]!r} is not '~N', '^N' or '*time'")
        kind, amount, moment = match.groups()
        if moment is not None:
            steps.append(Step("*", parse_time_us(moment)))
        else:
            steps.append(Step(kind, int(amount or 1)))  # type: ignore[arg-type]
        position = match.end()
        if len(steps) > STEPS_MAX:
            raise InvalidName(f"a revision can have at most {STEPS_MAX} steps: {whole[:60]!r}…")
    return tuple(steps)
