"""Which files can hold rows for which an expression of Arrow's is true.

Arrow does not show what an expression consists of. It can tell though whether one may be true of rows of
which something is known: so each file is described to it by an expression of its own, made of its partition
values and statistics, which are read with the same care as for conditions (see ``pruning``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from importlib import import_module
from operator import and_
from typing import Any, Final

from penstock.formats.delta.protocol.actions import Add, Metadata
from penstock.formats.delta.protocol.column_mapping import get_column_mapping
from penstock.formats.delta.protocol.predicate_outcomes import KnownValue, make_known_partition_value
from penstock.formats.delta.rows.pruning import read_known_value, read_stats
from penstock.formats.rows.arrow_types import allow_nulls, find_arrow_type, pa, pc
from penstock.formats.rows.predicates import Column
from penstock.formats.rows.schema import Field, parse_schema

_COMPARABLE: Final = frozenset(
    {"string", "long", "integer", "short", "byte", "boolean", "date", "timestamp", "timestamp_ntz"}
)
"""Types whose bounds Arrow is told. Floats are not among them: NaN is outside of all bounds."""


def keep_files(
    files: Iterable[Add], metadata: Metadata, columns: Sequence[str] | None, expression: Any
) -> Iterator[Add]:
    """The files that may have a row for which an expression is true. It is about these columns, or any."""
    facts = _FileFacts(metadata, columns)
    if not facts.fields:
        return iter(files)
    return (file for file in files if _may_hold(expression, facts.make_expression(file), facts.schema))


def _may_hold(expression: Any, known: Any, schema: Any) -> bool:
    """Whether an expression may be true of rows of which another one is known to be true."""
    if known is None:
        return True
    datasets = import_module("pyarrow.dataset")
    kind, here = datasets.ParquetFileFormat(), pa.fs.LocalFileSystem()
    file = kind.make_fragment("file", here, partition_expression=known)
    described = datasets.FileSystemDataset([file], schema, kind, here)
    try:
        return any(True for _ in described.get_fragments(filter=expression))
    except pa.ArrowException:  # about columns that nothing is known of, or in a way that is not understood
        return True


class _FileFacts:
    """Says of files what is known of their rows."""

    def __init__(self, metadata: Metadata, columns: Sequence[str] | None) -> None:
        schema = parse_schema(metadata.schema_string)
        named = schema.fields if columns is None else tuple(filter(None, map(schema.field, columns)))
        self._partitions = frozenset(name.lower() for name in metadata.partition_columns)
        self._mapping = get_column_mapping(metadata)
        self.fields = tuple(field for field in named if field.type in _COMPARABLE)
        self.schema = pa.schema([(field.name, _get_arrow_type(field)) for field in named])

    def make_expression(self, file: Add) -> Any:
        """What is true of all rows of a file; ``None`` if nothing is known."""
        stats = read_stats(file)
        conditions = [part for field in self.fields for part in self._make_conditions(field, file, stats)]
        return reduce(and_, conditions) if conditions else None

    def _make_conditions(self, field: Field, file: Add, stats: dict[str, Any]) -> Iterator[Any]:
        name = self._mapping.get_physical_name(field)
        if field.name.lower() in self._partitions:
            known_value = make_known_partition_value(field.type, file.partition_values.get(name))
        else:
            known_value = read_known_value(Column((field,)), [name], stats)
        yield from _make_value_conditions(field, known_value)


def _make_value_conditions(field: Field, known: KnownValue) -> Iterator[Any]:
    column = pc.field(field.name)
    if not known.may_be_value:
        yield column.is_null()
        return
    for bound, compare in ((known.low, column.__ge__), (known.high, column.__le__)):
        if bound is None:
            continue
        try:
            is_inside = compare(pa.scalar(bound, _get_arrow_type(field)))
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            continue
        yield is_inside | column.is_null() if known.may_be_null else is_inside


def _get_arrow_type(field: Field) -> Any:
    return find_arrow_type(allow_nulls(field.type), field.name)
