"""The first part of the check of a commit: its lines, as far as they can be read.

Actions are read leniently elsewhere, since a table may be older than these rules. What a writer gives is not:
a line that some reader fails on would make the table unreadable for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec

from penstock.formats.delta.errors import MalformedAction
from penstock.formats.delta.protocol.actions import (
    INT64_MAX,
    INT64_MIN,
    Action,
    CommitInfo,
    Metadata,
    commit_lines,
    parse_action,
)
from penstock.formats.delta.protocol.lint_files import Fault
from penstock.formats.delta.protocol.transaction import DeltaIsolation
from penstock.model.decoders import get_json_decoder

UNREAD_MAX: Final = 1000
"""After so many lines that cannot be read no more are looked at."""


class NumberedLine(NamedTuple):
    """A line, with its number from 1 and the action that it holds, if that is of a known kind."""

    number: int
    raw: bytes
    action: Action | None


def read_lines(data: bytes, faults: list[Fault]) -> Iterator[NumberedLine]:
    """The lines of a commit that can be read. What is wrong with the others is added to ``faults``."""
    unread = 0
    for number, raw in commit_lines(data):
        try:
            if raw == b"{}":
                raise MalformedAction("", reason="it contains no action")
            action = parse_action(raw, number)
            if isinstance(action, Metadata):
                _WHOLE_METADATA.decode(raw)
        except MalformedAction as problem:
            reason = problem.details["reason"]
        except msgspec.MsgspecError as problem:
            reason = str(problem)
        else:
            yield NumberedLine(number, raw, action)
            continue
        faults.append((number, reason))
        unread += 1
        if unread == UNREAD_MAX:
            faults.append(
                (number, f"{UNREAD_MAX} lines cannot be read; the lines after them were not checked")
            )
            return


def info_faults(info: CommitInfo) -> Iterator[str]:
    """What is wrong with the fields of a ``commitInfo`` that readers expect to be of a type."""
    for name, (kind, words) in _INFO.items():
        value = info.fields.get(name)
        if value is None:
            continue
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            yield f"'{name}' must be {words}, got {_shorten_value(value)}"
        elif isinstance(value, int) and not INT64_MIN <= value <= INT64_MAX:
            yield f"'{name}' is {value}, which does not fit into 64 bits"
    level = info.isolation_level
    if level is not None and level not in _LEVELS:
        yield f"'isolationLevel' must be one of {', '.join(_LEVELS)}, got {_shorten_value(level)}"


_LEVELS: Final = tuple(level.value for level in DeltaIsolation)
_NUMBER: Final = (int, "a whole number")
_TEXT: Final = (str, "a text")
_OBJECT: Final = (dict, "a JSON object")
_INFO: Final[dict[str, tuple[type, str]]] = {
    "timestamp": _NUMBER,
    "inCommitTimestamp": _NUMBER,
    "readVersion": _NUMBER,
    "operation": _TEXT,
    "isolationLevel": _TEXT,
    "engineInfo": _TEXT,
    "txnId": _TEXT,
    "userId": _TEXT,
    "userName": _TEXT,
    "userMetadata": _TEXT,
    "operationParameters": _OBJECT,
    "operationMetrics": _OBJECT,
    "isBlindAppend": (bool, "true or false"),
}


def _shorten_value(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…"


_SHOWN_MAX: Final = 60


class _WholeFormat(msgspec.Struct):
    provider: str
    options: dict[str, str] = {}


class _WholeMetadata(msgspec.Struct, rename="camel"):
    """What strict readers want to find, though the protocol has an answer for what is missing."""

    format: _WholeFormat
    configuration: dict[str, str]


class _WholeLine(msgspec.Struct, rename="camel"):
    meta_data: _WholeMetadata


_WHOLE_METADATA: Final = get_json_decoder(_WholeLine)
