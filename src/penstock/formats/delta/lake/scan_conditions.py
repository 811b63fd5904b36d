"""Which files of a Delta table the filters of an engine's scan leave out.

The engine tells its filters as it has them when it reads: columns by their names in files, values with their
types. They become conditions on the table's columns, and the same rules decide that decide on a condition
that is given as text. A part of a filter that is not understood may be true for any row.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final, NamedTuple

from penstock.errors import InvalidRequest
from penstock.formats.delta.lake.snapshot import TableSnapshot
from penstock.formats.delta.protocol.column_mapping import ColumnMapping, get_column_mapping
from penstock.formats.delta.rows.file_addresses import name_inside
from penstock.formats.delta.rows.pruning import FilePruner
from penstock.formats.rows.partition_values import Value
from penstock.formats.rows.predicates import (
    And,
    Column,
    ComparedValues,
    IsNull,
    Like,
    Not,
    OneOf,
    Or,
    Predicate,
    to_float,
)
from penstock.formats.rows.schema import Field, StructType
from penstock.formats.rows.spark_conditions import has_same_meaning_in_spark, is_exact_decimal
from penstock.lake.scan_files import ScanCondition, SkippedFiles
from penstock.storage.linked_places import LinkedPlace

DEPTH_MAX: Final = 100
_WHOLE: Final = frozenset({"byte", "short", "integer", "long"})
_OPERATORS: Final = frozenset({"=", "<", "<=", ">", ">="})
_SAME_OR_NULL: Final = "<=>"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SPECIAL: Final = str.maketrans({character: f"\\{character}" for character in "\\%_"})


def readable_condition(snapshot: TableSnapshot, where: str | None, zone: str | None) -> str | None:
    """A condition of a query, if files may be left out by it: it is sure what Spark makes of it."""
    if where is None or not has_same_meaning_in_spark(where, snapshot.schema, zone):
        return None
    return where


def skip_files(
    snapshot: TableSnapshot, conditions: Sequence[ScanCondition], among: Collection[str] = ()
) -> SkippedFiles:
    """The files that have no row for which all conditions are true, or the others if these are fewer.

    With names, only files ``among`` these are looked at, and those of them that have no such row are told.
    Files of a clone that lie elsewhere are not left out: they are told by names below the table.
    """
    reader = _ConditionReader(snapshot.schema, get_column_mapping(snapshot.metadata))
    predicate = reader.read_all(conditions)
    if predicate is None:
        return SkippedFiles(is_kept=False, files=())
    pruner = FilePruner(predicate, snapshot.metadata)
    kept_names: list[str] = []
    skipped: list[str] = []
    place = snapshot.place
    is_clone = isinstance(place, LinkedPlace)
    asked_names = frozenset(among)
    index = None if is_clone else snapshot.log_snapshot.index
    if asked_names and index is not None and index.is_ready(pruner):
        needed = {name_inside(file.path, place) for file in index.find_files(pruner)}
        return SkippedFiles(is_kept=False, files=tuple(index.find_names(asked_names) - needed))
    for file in snapshot.files():
        name = name_inside(file.path, place)
        if asked_names and name not in asked_names:
            continue
        if not isinstance(place, LinkedPlace) or place.find_source(name) is None:
            (kept_names if pruner.may_match(file) else skipped).append(name)
    # A name that the asker spells otherwise is not among the files here, and must not count as left out.
    is_kept = len(kept_names) < len(skipped) and not is_clone and not asked_names
    return SkippedFiles(is_kept=is_kept, files=tuple(kept_names if is_kept else skipped))


class _ConditionNode(NamedTuple):
    """A condition with those that it joins."""

    condition: ScanCondition
    parts: tuple[_ConditionNode, ...]


def _join_conditions(conditions: Sequence[ScanCondition]) -> _ConditionNode:
    """All conditions as one. ``InvalidRequest`` if one joins more than there are before it."""
    free: list[_ConditionNode] = []
    for condition in conditions:
        start = len(free) - condition.parts
        if not 0 <= start <= len(free):
            raise InvalidRequest(
                f"the list of conditions is malformed: one joins {condition.parts} "
                f"conditions, but only {len(free)} come before it"
            )
        free[start:] = [_ConditionNode(condition, tuple(free[start:]))]
    return _ConditionNode(ScanCondition(kind="and"), tuple(free))


class _ConditionReader:
    """Makes conditions on a table's columns of filters on the columns of its files."""

    def __init__(self, schema: StructType, mapping: ColumnMapping) -> None:
        self._schema, self._mapping = schema, mapping

    def read_all(self, conditions: Sequence[ScanCondition]) -> Predicate | None:
        """All conditions as one; ``None`` if it may be true for any row."""
        return self._read_condition(_join_conditions(conditions), is_required=True, depth=0)

    def _read_condition(self, node: _ConditionNode, is_required: bool, depth: int) -> Predicate | None:
        """A condition; ``None`` if it is not understood.

        ``is_required`` says that rows are wanted for which it is true, rather than not true: a part of a
        conjunction that is not understood may be left out then.
        """
        if depth > DEPTH_MAX:
            return None
        kind = node.condition.kind
        if kind == "not" and len(node.parts) == 1:
            inner = self._read_condition(node.parts[0], not is_required, depth + 1)
            return None if inner is None else Not(inner)
        if kind not in {"and", "or"}:
            return self._read_leaf(node.condition)
        parts = [self._read_condition(part, is_required, depth + 1) for part in node.parts]
        understood = tuple(part for part in parts if part is not None)
        is_conjunction = kind == "and"
        if not understood or (len(understood) < len(parts) and is_conjunction != is_required):
            return None
        return And(understood) if is_conjunction else Or(understood)

    def _read_leaf(self, condition: ScanCondition) -> Predicate | None:
        column = self._find_column(condition)
        if column is None:
            return None
        if condition.kind == "is_null":
            return IsNull(column)
        try:
            values = tuple(_parse_value(str(column.kind), text) for text in condition.values)
        except (ValueError, ArithmeticError):
            return None  # beyond what is compared here
        if not values:
            return None
        if condition.kind == "in":
            return OneOf(column, values)
        if len(values) > 1:
            return None
        value = values[0]
        if condition.kind == "starts_with" and isinstance(value, str):
            return Like(column, value.translate(_SPECIAL) + "%")
        if condition.kind != "compare":
            return None
        if condition.operator == _SAME_OR_NULL:
            return And((Not(IsNull(column)), ComparedValues(column, "=", value)))
        return ComparedValues(column, condition.operator, value) if condition.operator in _OPERATORS else None

    def _find_column(self, condition: ScanCondition) -> Column | None:
        """The table's column that files have by this name; ``None`` if there is none of this type."""
        fields: list[Field] = []
        inside: object = self._schema
        for name in condition.column:
            parts = inside.fields if isinstance(inside, StructType) else ()
            field = next((part for part in parts if self._mapping.get_physical_name(part) == name), None)
            if field is None:
                return None
            fields.append(field)
            inside = field.type
        if not fields or (condition.kind != "is_null" and inside != condition.type):
            return None
        return Column(tuple(fields))


def _parse_value(kind: str, text: str) -> Value:
    """A value of a type. ``ValueError`` or ``ArithmeticError`` if it is none that is compared here."""
    if kind in _WHOLE:
        return int(text)
    if kind in {"float", "double"}:
        return to_float(float(text)) if kind == "float" else float(text)
    if kind == "string":
        return text
    if kind == "boolean":
        return text == "true"
    if kind == "date":
        return _EPOCH.date() + timedelta(days=int(text))
    if kind in {"timestamp", "timestamp_ntz"}:
        moment = _EPOCH + timedelta(microseconds=int(text))
        return moment if kind == "timestamp" else moment.replace(tzinfo=None)
    if is_exact_decimal(kind):
        return Decimal(text)
    raise ValueError(f"values of the type {kind} cannot be compared")
