"""Partition columns of a table of files: what the folders of its paths say, as Spark takes it.

A folder such as ``day=2026-11-14`` gives all rows of the files in it a value. Where a schema names the
column, its type is the one there; otherwise it follows from all of the column's values, by the rules that
Spark has for directories. Where Spark would leave out files without a word, because paths do not agree on the
columns, this is an error.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterable, Mapping
from functools import cache, reduce
from typing import Final

import msgspec

from penstock.errors import InvalidRequest
from penstock.formats.files.lake.data_files import NO_VALUE

_ESCAPED: Final = re.compile(r"%([0-9A-Fa-f]{2})")
_WHOLE: Final = re.compile(r"[+-]?\d+")
_DECIMAL: Final = re.compile(r"[+-]?(?P<whole>\d*)(?:\.(?P<part>\d*))?(?:[eE](?P<exponent>[+-]?\d+))?")
_REAL: Final = re.compile(
    r"[\x00-\x20]*[+-]?(?:NaN|Infinity"
    r"|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[fFdD]?"
    r"|0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?\d+[fFdD]?)[\x00-\x20]*",
    re.ASCII,
)
_DAY: Final = re.compile(r"(-?\d{4}|\+[1-9]\d{4,6})-(\d\d)-(\d\d)", re.ASCII)
_CLOCK: Final = r"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d"
_MOMENT: Final = re.compile(rf"(-?\d{{4}}|\+[1-9]\d{{4,6}})-(\d\d)-(\d\d) {_CLOCK}(?:\.\d)?", re.ASCII)
_TIME: Final = re.compile(rf"{_CLOCK}(?:\.\d{{1,6}})?", re.ASCII)
_DIGITS_MAX: Final = 38
_EXPONENT_MAX_CHARS: Final = 9
_WHOLE_DIGITS: Final = {"integer": 10, "long": 20}
"""As how many digits Spark counts whole numbers where a decimal is to hold them as well."""


class PartitionRules(msgspec.Struct, frozen=True, kw_only=True):
    """What a session says of partition columns."""

    infers: bool = True
    """Whether types follow from values. Otherwise what no schema names is text."""
    timestamp: str = "timestamp"
    """The type of a time without a zone: ``timestamp`` or ``timestamp_ntz``."""
    is_case_sensitive: bool = False

    def fold_case(self, name: str) -> str:
        """A column name for comparisons: lower case unless names are case-sensitive."""
        return name if self.is_case_sensitive else name.lower()


class PartitionColumns(msgspec.Struct, frozen=True):
    """The partition columns that a set of paths has."""

    fields: tuple[tuple[str, str], ...]
    """Names and types, these as in Spark's JSON, from the outermost folder on."""
    values: Mapping[str, tuple[str | None, ...]]
    """Of a folder: the values of all columns, as texts that Spark casts to their types."""

    def parse_values(self, path: str) -> tuple[str | None, ...]:
        """The values for the file at a path, which is one of those that this was made of."""
        return self.values[_get_folder(path)]


def find_partition_columns(
    paths: Iterable[str], known: Mapping[str, str], rules: PartitionRules
) -> PartitionColumns:
    """The partition columns of files at some paths; ``known`` are types of columns, by name.

    ``InvalidRequest`` if two of the paths do not have the same ones, or a folder has no name or no value.
    """
    first: tuple[str, _PartitionPlace] | None = None
    raws: dict[str, tuple[str, ...]] = {}
    for path in paths:
        folder = _get_folder(path)
        if folder in raws:
            continue
        place = _find_partition_place(folder)
        if first is None:
            first = path, place
        elif place.list_columns(rules) != first[1].list_columns(rules):
            raise InvalidRequest(
                f"'{first[0]}' and '{path}' are in folders of different partition columns: {first[1]}, and "
                f"{place}\n  Read a part of the table: folder='…'"
            )
        raws[folder] = place.raws
    if first is None:
        return PartitionColumns((), {})
    names = _require_distinct(first[1].names, first[0], rules)
    folded = {rules.fold_case(name): (name, kind) for name, kind in known.items()}
    fields = []
    for at, name in enumerate(names):
        known_field = folded.get(rules.fold_case(name))
        fields.append(
            known_field or (name, _find_common_type({raw_values[at] for raw_values in raws.values()}, rules))
        )
    types = [kind for _, kind in fields]
    values = {
        folder: tuple(map(_make_castable_text, raw_values, types)) for folder, raw_values in raws.items()
    }
    return PartitionColumns(tuple(fields), values)


class _PartitionPlace(msgspec.Struct, frozen=True):
    """Where a folder is: below a base, in folders that stand for values."""

    base: str = ""
    names: tuple[str, ...] = ()
    raws: tuple[str, ...] = ()
    """The values, as they are in the path."""

    def list_columns(self, rules: PartitionRules) -> tuple[str, tuple[str, ...]]:
        return self.base, tuple(map(rules.fold_case, self.names))

    def __str__(self) -> str:
        named = ", ".join(self.names) or "none"
        return f"{named} below '{self.base}/'" if self.base else named


def _get_folder(path: str) -> str:
    return path.rpartition("/")[0]


def _find_partition_place(folder: str) -> _PartitionPlace:
    """As Spark looks: from the innermost folder outwards, to the last one that stands for a value."""
    parts = folder.split("/")
    end = len(parts)
    while end and "=" not in parts[end - 1]:
        end -= 1
    start = end
    while start and "=" in parts[start - 1]:
        start -= 1
    if start == end:
        return _PartitionPlace()
    pairs = [part.partition("=") for part in parts[start:end]]
    if not all(name and raw for name, _, raw in pairs):
        raise InvalidRequest(
            f"the folder '{folder}/' has a partition column without a name, or without a value"
        )
    return _PartitionPlace(
        "/".join(parts[:start]),
        tuple(unescape_partition_text(name) for name, _, _ in pairs),
        tuple(raw for _, _, raw in pairs),
    )


def _require_distinct(names: tuple[str, ...], path: str, rules: PartitionRules) -> tuple[str, ...]:
    if len({rules.fold_case(name) for name in names}) < len(names):
        raise InvalidRequest(f"'{path}' is in two folders of one partition column: {', '.join(names)}")
    return names


def unescape_partition_text(text: str) -> str:
    """Decode Spark's ``%XX`` escapes in a partition's name or value."""
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text) if "%" in text else text


def _make_castable_text(raw: str, kind: str) -> str | None:
    """A value for Spark's cast to a type."""
    if raw == NO_VALUE:
        return None
    if kind in _WHOLE_DIGITS and _WHOLE.fullmatch(raw):
        return str(int(raw))  # in whichever digits it was
    return unescape_partition_text(raw)


# -- types that follow from values ---------------------------------------------------------------------------


def _find_common_type(raws: Iterable[str], rules: PartitionRules) -> str:
    return reduce(_widen_type, sorted({_guess_type(raw, rules) for raw in raws}))


@cache
def _widen_type(kind: str, other: str) -> str:
    """The type for values of two. There is one for any two: text, if no other."""
    if kind == other or other == "void":
        return kind
    if kind == "void":
        return other
    both = {kind, other}
    if both == {"integer", "long"}:
        return "long"
    if both == {"integer", "double"}:
        return "double"
    if both in ({"date", "timestamp"}, {"date", "timestamp_ntz"}):
        return max(both)
    digits = [_count_digits_of_type(kind), _count_digits_of_type(other)]
    return "string" if 0 in digits else f"decimal({max(digits)},0)"


def _count_digits_of_type(kind: str) -> int:
    """Of a type of whole numbers; 0 for others."""
    if kind.startswith("decimal("):
        return int(kind.removeprefix("decimal(").partition(",")[0])
    return _WHOLE_DIGITS.get(kind, 0)


def _guess_type(raw: str, rules: PartitionRules) -> str:
    if raw == NO_VALUE:
        return "void"
    if not rules.infers:
        return "string"
    if _WHOLE.fullmatch(raw):
        number = int(raw) if len(raw) <= _DIGITS_MAX else None
        if number is not None and -(2**31) <= number < 2**31:
            return "integer"
        if number is not None and -(2**63) <= number < 2**63:
            return "long"
    if digits := _count_digits_of_whole_number(raw):
        return f"decimal({digits},0)"
    if _REAL.fullmatch(raw):
        return "double"
    text = unescape_partition_text(raw)
    if (match := _MOMENT.fullmatch(text)) and _is_day(*match.groups()):
        return rules.timestamp
    if (match := _DAY.fullmatch(raw)) and _is_day(*match.groups()):
        return "date"
    return "time(6)" if _TIME.fullmatch(text) else "string"


def _count_digits_of_whole_number(raw: str) -> int:
    """How many digits a number without a fraction has, such as 1e5; 0 if it has one, or too many."""
    match = _DECIMAL.fullmatch(raw)
    if match is None:
        return 0
    whole, part, exponent = match["whole"], match["part"] or "", match["exponent"] or "0"
    if not (whole or part) or len(exponent) > _EXPONENT_MAX_CHARS:
        return 0
    scale = len(part) - int(exponent)
    significant = len((whole + part).lstrip("0")) or 1
    digits = significant - scale
    return digits if scale <= 0 and digits <= _DIGITS_MAX else 0


def _is_day(year: str, month: str, day: str) -> bool:
    number = int(month)
    if not 1 <= number <= 12:
        return False
    # Any four hundred years are like any others; Python's calendar has none before 1.
    return 1 <= int(day) <= calendar.monthrange(2000 + int(year) % 400, number)[1]
