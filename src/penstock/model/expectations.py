"""Expectations: queries that must find nothing on a branch, kept in the branch's own row.

They are the row's note, and are swapped with it: whoever moves the branch has read them, or loses the swap.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import msgspec

from penstock.errors import Damaged, InvalidRequest
from penstock.model.encoding import encode, make_decoder
from penstock.model.keys import Key
from penstock.model.references import Kind, Reference

NAME_MAX_CHARS: Final = 100
SQL_MAX_CHARS: Final = 4000
_MARK: Final = b"penstock expects\0"
"""How the note of a branch begins that has expectations; other notes are somebody else's."""


class Expectation(msgspec.Struct, frozen=True, kw_only=True):
    """A data check: a query that must find no row."""

    name: str
    sql: str
    tables: tuple[str, ...]
    """The keys of the tables that it names. It runs when one of them changes."""
    who: str = ""
    """Added it."""
    added_us: int = 0

    @property
    def keys(self) -> frozenset[Key]:
        return frozenset(map(Key.parse, self.tables))


_decode = make_decoder(tuple[Expectation, ...]).decode


def has_expectations(reference: Reference) -> bool:
    """Whether nothing goes to a branch that was not asked about."""
    return reference.kind is Kind.BRANCH and reference.note.startswith(_MARK)


def read_expectations(reference: Reference) -> tuple[Expectation, ...]:
    """What a branch expects, in the order in which it was added; ``Damaged`` if that cannot be read."""
    if not has_expectations(reference):
        return ()
    try:
        return _decode_note(reference.note)
    except (msgspec.MsgspecError, ValueError) as problem:
        raise Damaged(
            f"the expectations (data checks) of the branch '{reference.name}' cannot be read: {problem}",
            name=reference.name,
        ) from None


def encode_expectations(expectations: tuple[Expectation, ...]) -> bytes:
    """The note of a branch that expects this."""
    return _MARK + encode(expectations) if expectations else b""


def check_expectation(name: str, sql: str) -> None:
    """``InvalidRequest`` if the name or the text of an expectation is too long, empty, or no text."""
    if not 0 < len(name) <= NAME_MAX_CHARS or not name.isprintable():
        raise InvalidRequest(
            f"the name of an expectation must have 1 to {NAME_MAX_CHARS} printable characters"
        )
    if not 0 < len(sql.strip()) <= len(sql) <= SQL_MAX_CHARS:
        raise InvalidRequest(f"the query of an expectation must have 1 to {SQL_MAX_CHARS} characters")
    check_text(sql)


def check_text(sql: str) -> None:
    """``InvalidRequest`` if a query has characters that are none. They are not repeated: nobody could."""
    try:
        sql.encode()
    except UnicodeEncodeError:
        raise InvalidRequest("the query is not valid text: it has half of a surrogate pair") from None
    if "\0" in sql:
        raise InvalidRequest("the query is not valid text: it has a NUL character")


@lru_cache(256)
def _decode_note(note: bytes) -> tuple[Expectation, ...]:
    expectations: tuple[Expectation, ...] = _decode(note.removeprefix(_MARK))
    return expectations
