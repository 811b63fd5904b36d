"""What two servers answered, in a form in which it is equal when they behave alike.

Hashes, contents' ids, the time of day and page tokens are each server's own. Hashes and ids are replaced by
the order in which they first appear, so that it still matters *which* commit an answer names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence

import msgspec

from tests.nessie.oracle.asking import EMPTY, Answer, Ask

_HASH = re.compile(r"\b[0-9a-f]{64}\b")
_ID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
_TIME = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")

# These come in the order of a hash table.
_UNORDERED = frozenset({"addedContents", "contents"})
_VIOLATIONS = re.compile(r", (?=[a-z]\w+(?:\.\w+)+: )")
"""The borders between the parts of a message that tells all that is wrong with a request, in any order."""


def normal(asks: Sequence[Ask], answers: Sequence[Answer]) -> list[Answer]:
    """The answers of a whole scenario, so that a name given in one is known in the next."""
    names = _Names(asks)
    return [msgspec.structs.replace(each, body=names.of(each.body)) for each in answers]


class _Names:
    """The names that stand for one server's own values."""

    def __init__(self, asks: Sequence[Ask]) -> None:
        # What the client itself has said must come back as it was.
        said = json.dumps([[ask.path, ask.body] for ask in asks])
        self._given: dict[str, str] = {found: found for found in _ID.findall(said)}
        self._given |= {_instant(found): _instant(found) for found in _TIME.findall(said)}
        self._given[EMPTY] = EMPTY
        self._counts: dict[str, int] = {}

    def of(self, value: object, field: str = "") -> object:
        match value:
            case str() if field == "token":
                return "token"
            case str() if field == "message":
                return ", ".join(sorted(_VIOLATIONS.split(self._in_text(value))))
            case str():
                return self._in_text(value)
            case list():
                ordered = sorted(value, key=_key) if field in _UNORDERED else value
                return [self.of(each) for each in ordered]
            case dict():
                return {name: self.of(value[name], name) for name in sorted(value)}
        return value

    def _in_text(self, text: str) -> str:
        text = _HASH.sub(self._numbered("hash"), text)
        text = _ID.sub(self._numbered("id"), text)
        return _TIME.sub(lambda match: self._given.get(_instant(match[0]), "time"), text)

    def _numbered(self, kind: str) -> Callable[[re.Match[str]], str]:
        def name(match: re.Match[str]) -> str:
            if match[0] not in self._given:
                self._counts[kind] = self._counts.get(kind, 0) + 1
                self._given[match[0]] = f"{kind}-{self._counts[kind]}"
            return self._given[match[0]]

        return name


def _instant(text: str) -> str:
    """A time without the zeros that end its fraction, which some write and some do not."""
    whole, _, fraction = text.removesuffix("Z").partition(".")
    return f"{whole}.{fraction.rstrip('0')}".rstrip(".") + "Z"


def _key(entry: Mapping[str, Mapping[str, list[str]]]) -> list[str]:
    return entry["key"]["elements"]


def differences(theirs: object, ours: object, where: str = "") -> list[str]:
    """Every place where two bodies differ, as lines to read."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        return [
            line
            for name in sorted(theirs.keys() | ours.keys())
            for line in differences(theirs.get(name, _NOTHING), ours.get(name, _NOTHING), f"{where}.{name}")
        ]
    if isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        return [
            line
            for number, (one, other) in enumerate(zip(theirs, ours, strict=True))
            for line in differences(one, other, f"{where}.{number}")
        ]
    # True and 1 are equal in Python, but not in JSON.
    if theirs == ours and type(theirs) is type(ours):
        return []
    return [f"{where or 'the body'}: Nessie {_shown(theirs)}, Penstock {_shown(ours)}"]


_NOTHING = object()


def _shown(value: object) -> str:
    return "has no such field" if value is _NOTHING else f"says {json.dumps(value, ensure_ascii=False)}"
