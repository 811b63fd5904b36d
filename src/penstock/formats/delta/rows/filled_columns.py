"""Columns that a table gives values to by itself: defaults, where rows come without a column, and generated
columns, which are computed when they are missing and checked when they are given.

The expressions are Spark's SQL. Only those are evaluated here of which it is sure that Spark computes the
same (``formats.rows.expression_text``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, Protocol

from penstock.errors import InvalidRequest
from penstock.formats.delta.errors import UnsupportedFeature
from penstock.formats.delta.protocol.column_rules import (
    CURRENT_DEFAULT,
    GENERATED,
    IdentityColumn,
    get_identity_column,
)
from penstock.formats.delta.rows.row_checks import check_columns, conform_batch
from penstock.formats.rows.arrow_types import allow_nulls, make_arrow_schema, pa, pc
from penstock.formats.rows.conversions import may_cast
from penstock.formats.rows.expression_text import parse_expression
from penstock.formats.rows.positions import number_rows
from penstock.formats.rows.row_expressions import TABLE, Conversion, RowFrames, SqlExpression
from penstock.formats.rows.schema import Field, StructType, parse_schema

_NOTHING: Final = StructType(())


class IdentityNumberSource(Protocol):
    """Where numbers of identity columns come from."""

    def take_numbers(self, name: str, count: int) -> int:
        """The first of so many numbers of a column; the others follow by its step."""

    def note_number(self, name: str, number: int) -> None:
        """Remember that a row came with a number."""


class ColumnFiller:
    """Makes rows of a table from rows that may lack some of its columns.

    ``UnsupportedFeature`` names an expression that cannot be evaluated here. ``InvalidRequest`` as
    ``row_checks.check_columns``, for columns that nothing gives a value to.
    """

    def __init__(
        self,
        schema: StructType,
        row_schema: Any,
        *,
        kept: Collection[str] = (),
        numbers: IdentityNumberSource | None = None,
    ) -> None:
        """``schema`` is the table's, ``row_schema`` is Arrow's of the rows. Columns that are ``kept`` have
        the values that they have in the table. ``numbers`` are those of identity columns."""
        self._numbers = numbers
        self._numbered: dict[str, IdentityColumn] = {}
        self._explicit: list[str] = []
        self._schema = schema
        names = {field.name.lower() for field in row_schema}
        self._defaults: dict[str, tuple[Field, SqlExpression]] = {}
        self._computed: dict[str, tuple[Field, SqlExpression]] = {}
        self._checked: dict[str, tuple[Field, SqlExpression]] = {}
        for field in self._schema.fields:
            if field.name in kept:
                continue
            is_given = field.name.lower() in names
            if (identity := get_identity_column(field)) is not None:
                self._add_identity(identity, is_given=is_given)
            elif isinstance(text := field.metadata.get(GENERATED), str):
                filled = (field, _parse_generation(field, text, self._schema))
                (self._checked if is_given else self._computed)[field.name] = filled
            elif not is_given and isinstance(text := field.metadata.get(CURRENT_DEFAULT), str):
                self._defaults[field.name] = (field, _parse_default(field, text))
        self._given = StructType(
            tuple(
                field
                for field in self._schema.fields
                if field.name not in {*self._defaults, *self._computed, *self._numbered}
            )
        )
        check_columns(row_schema, self._given)

    def fill_columns(self, batch: Any) -> Any:
        """A batch as rows of the table, with all its columns. Raises as ``conform_batch``."""
        filled = conform_batch(batch, self._given)
        if not (self._defaults or self._computed or self._checked or self._numbered or self._explicit):
            return filled
        columns: dict[str, Any] = dict(zip(filled.schema.names, filled.columns, strict=True))
        for name, (field, expression) in self._defaults.items():
            columns[name] = _conform_column(field, _compute_values(expression, batch))
        for name, identity in self._numbered.items():
            columns[name] = self._take_numbers(identity, batch.num_rows)
        for name in self._explicit:
            self._note_numbers(name, columns[name])
        columns_so_far = pa.RecordBatch.from_pydict(columns)
        for name, (field, expression) in self._computed.items():
            columns[name] = _conform_column(field, _compute_values(expression, columns_so_far))
        for field, expression in self._checked.values():
            _check_generated(field, expression, columns_so_far)
        loose = allow_nulls(self._schema)
        assert isinstance(loose, StructType)  # as what it was made from
        arrays = [columns[field.name] for field in self._schema.fields]
        return pa.RecordBatch.from_arrays(arrays, schema=make_arrow_schema(loose.fields))

    def _add_identity(self, identity: IdentityColumn, *, is_given: bool) -> None:
        if not is_given:
            self._numbered[identity.name] = identity
        elif not identity.allows_explicit:
            raise InvalidRequest(
                f"'{identity.name}' is an identity column, whose numbers the table assigns: leave the "
                "column out",
                column=identity.name,
            )
        else:
            self._explicit.append(identity.name)

    def _take_numbers(self, identity: IdentityColumn, count: int) -> Any:
        if not count:
            return pa.array([], pa.int64())
        first = self._require_numbers(identity.name).take_numbers(identity.name, count)
        return number_rows(count, first, identity.step)

    def _require_numbers(self, name: str) -> IdentityNumberSource:
        if self._numbers is None:
            raise UnsupportedFeature(
                f"numbers of the identity column '{name}' cannot be assigned here: write the rows with "
                "penstock.spark.write or table.append",
                feature="identityColumns",
                column=name,
            )
        return self._numbers

    def _note_numbers(self, name: str, values: Any) -> None:
        """Have numbers that rows came with count as given away."""
        for number in pc.min_max(values).as_py().values():
            if number is not None:
                self._require_numbers(name).note_number(name, number)


def check_fit(rows: Any, schema_string: str) -> bool:
    """Check the columns of rows against a schema, by their names, as ``ColumnFiller`` does.

    ``False`` for something that is no stream of rows.
    """
    if not isinstance(rows, pa.RecordBatchReader):
        return False
    ColumnFiller(parse_schema(schema_string), rows.schema)
    return True


def check_default(field: Field, text: str) -> None:
    """``InvalidRequest`` if an expression is no default of a column, ``UnsupportedFeature`` if that cannot be
    told without Spark."""
    value = _compute_values(_parse_default(field, text), pa.RecordBatch.from_pydict({"row": [0]}))
    if value.null_count and not field.nullable:
        raise InvalidRequest(
            f"the column '{field.name}' is not nullable, and {text} is null", column=field.name
        )
    _conform_column(field, value)


def _parse_default(field: Field, text: str) -> SqlExpression:
    return _parse_expression(field, text, _NOTHING, "the default of the column", "allowColumnDefaults")


def _parse_generation(field: Field, text: str, schema: StructType) -> SqlExpression:
    return _parse_expression(field, text, schema, "the generated column", "generatedColumns")


def _parse_expression(
    field: Field, text: str, schema: StructType, subject: str, feature: str
) -> SqlExpression:
    """An expression as one of a column's type; what is not converted is refused for its values."""
    try:
        expression = parse_expression(text, {TABLE: schema}, is_stored=True)
    except InvalidRequest as problem:
        raise _unsupported_expression_error(subject, field, text, problem.message, feature) from None
    if expression.root.kind == field.type or not may_cast(expression.root.kind, field.type):
        return expression
    return SqlExpression(text, Conversion(expression.root, field.type))


def _compute_values(expression: SqlExpression, batch: Any) -> Any:
    return expression.evaluate(RowFrames({TABLE: batch}, batch.num_rows))


def _unsupported_expression_error(
    subject: str, field: Field, text: str, why: str, feature: str
) -> UnsupportedFeature:
    return UnsupportedFeature(
        f"{subject} '{field.name}' ({text}) cannot be evaluated without Spark: {why}\n"
        "  Write the rows with penstock.spark.write, or give the column a value where it has a default.",
        feature=feature,
        column=field.name,
    )


def _conform_column(field: Field, values: Any) -> Any:
    """Values as those of a column. Raises as ``conform_batch``."""
    return conform_batch(pa.RecordBatch.from_arrays([values], [field.name]), StructType((field,))).column(0)


def _check_generated(field: Field, expression: SqlExpression, batch: Any) -> None:
    computed, values = _conform_column(field, _compute_values(expression, batch)), batch.column(field.name)
    both_null = pc.and_(pc.is_null(computed), pc.is_null(values))
    is_same = pc.or_(pc.fill_null(pc.equal(computed, values), False), both_null)
    if pa.types.is_floating(computed.type):
        both_odd = pc.and_(pc.fill_null(pc.is_nan(computed), False), pc.fill_null(pc.is_nan(values), False))
        is_same = pc.or_(is_same, both_odd)
    if pc.all(is_same).as_py() is not False:
        return
    first = pc.index(is_same, False).as_py()
    names = [field.name, *sorted(expression.list_columns_of(TABLE) - {field.name})]
    row: Mapping[str, Any] = batch.slice(first, 1).select(names).to_pylist()[0]
    shown = ", ".join(f"{name} = {value!r}" for name, value in row.items())
    raise InvalidRequest(
        f"the data violates the generated column '{field.name}' ({field.metadata[GENERATED]}): it is "
        f"{computed[first].as_py()!r} for a row with {shown}; leave the column out to have it computed; "
        "nothing was written",
        column=field.name,
        row=shown,
    )
