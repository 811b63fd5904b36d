"""Conditions on rows, as trees: what a condition is about, whoever wrote it in whatever way.

A condition is true, false or, where a null is compared, neither; rows stay for which it is true. ``NaN``
equals itself and is larger than every other number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache
from struct import pack, unpack
from typing import TypeAlias

import msgspec

from penstock.formats.rows.partition_values import Value
from penstock.formats.rows.schema import Field, Type


class Column(msgspec.Struct, frozen=True):
    """A column, or a part of one: the fields from the schema down to it."""

    fields: tuple[Field, ...]

    @property
    def path(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.fields)

    @property
    def kind(self) -> Type:
        return self.fields[-1].type

    def __str__(self) -> str:
        return ".".join(self.path)


class ComparedValues(msgspec.Struct, frozen=True):
    """A column compared with a value that is not null."""

    column: Column
    operator: str
    value: Value


class OneOf(msgspec.Struct, frozen=True):
    """A column whose value is one of some."""

    column: Column
    values: tuple[Value, ...]


class Like(msgspec.Struct, frozen=True):
    r"""A text of a pattern: ``%`` is any text, ``_`` is any character, and ``\`` takes that from both."""

    column: Column
    pattern: str

    @property
    def prefix(self) -> str:
        """What every text of the pattern begins with."""
        begin = re.match(r"(?:[^%_\\]|\\.)*", self.pattern, re.DOTALL)
        return re.sub(r"\\(.)", r"\1", begin[0] if begin else "", flags=re.DOTALL)

    def matches(self, text: str) -> bool:
        """Whether a text is of the pattern."""
        return _compile_like_pattern(self.pattern).fullmatch(text) is not None


class IsNull(msgspec.Struct, frozen=True):
    """A column without a value. The only condition that is never neither."""

    column: Column


class Not(msgspec.Struct, frozen=True):
    """The opposite; neither stays neither."""

    inner: Predicate


class And(msgspec.Struct, frozen=True):
    """All of them."""

    parts: tuple[Predicate, ...]


class Or(msgspec.Struct, frozen=True):
    """Any of them."""

    parts: tuple[Predicate, ...]


Predicate: TypeAlias = ComparedValues | OneOf | Like | IsNull | Not | And | Or


@lru_cache(maxsize=64)
def _compile_like_pattern(pattern: str) -> re.Pattern[str]:
    """What a pattern stands for. No text makes it try more than so many places for each of its parts."""
    parts = [""]
    for step in re.findall(r"\\.|.", pattern, re.DOTALL):
        if step == "%":
            parts.append("")
        else:
            parts[-1] += "." if step == "_" else re.escape(step[-1])
    first, *others = parts
    if others:
        # A part between two '%' is taken where it comes first: later ones leave no more room.
        first += "".join(f"(?>.*?{part})" for part in others[:-1]) + f".*{others[-1]}"
    return re.compile(first, re.DOTALL)


def list_columns(predicate: Predicate) -> Iterator[Column]:
    """The columns that a condition is about, as often as it names them."""
    match predicate:
        case Not():
            yield from list_columns(predicate.inner)
        case And() | Or():
            for part in predicate.parts:
                yield from list_columns(part)
        case _:
            yield predicate.column


def to_utc(value: datetime) -> datetime:
    """A time of a column with zones; one that names none is UTC."""
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def to_float(value: float) -> float:
    """The nearest number of 32 bits, infinity if it is too large for them."""
    try:
        rounded: float = unpack("<f", pack("<f", value))[0]
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
    return rounded
