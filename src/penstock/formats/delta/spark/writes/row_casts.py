"""Casts the rows of a DataFrame to the types of a table: without loss, or nothing is written.

Columns are found by their names, whatever their order. A type of the table must hold every value of the
data's type: that is decided before a job begins, with all that is wrong in one message. Nulls are found when
they come along, and end the job.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from penstock.formats.delta.protocol.column_rules import CURRENT_DEFAULT, GENERATED, get_identity_column
from penstock.formats.delta.rows.merged_schemas import fold_case, join_path, refuse_problems
from penstock.formats.delta.spark.job.computed_columns import add_generated_columns, make_default
from penstock.formats.rows.arrow_types import DECIMAL
from penstock.formats.rows.schema import ArrayType, Field, MapType, StructType, Type
from penstock.spark.row_refusals import make_refusal_column
from penstock.spark.schemas import from_spark_schema, is_case_sensitive, quote_name, to_spark_schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

VOID: Final = "void"
"""The type of a column that holds nothing but nulls. It fits every column that may be null."""

_TIMES: Final = ("timestamp", "timestamp_ntz")
_WIDER: Final = {
    "byte": frozenset({"short", "integer", "long", "float", "double"}),
    "short": frozenset({"integer", "long", "float", "double"}),
    "integer": frozenset({"long", "double"}),
    "float": frozenset({"double"}),
}
_DIGITS: Final = {"byte": 3, "short": 5, "integer": 10, "long": 20}


def fit_rows(df: DataFrame, table: StructType, beside: Sequence[str] = ()) -> DataFrame:
    """The rows with exactly the columns of a table, in their order, and of their types, and some ``beside``.

    A column that the data lacks is generated, or has its default, or is null, if it may be.
    ``InvalidRequest`` lists all that does not fit. The job ends with a refusal at the first null where none
    may be.
    """
    from pyspark.sql import functions as f

    data_schema = from_spark_schema(df.drop(*beside).schema)
    case_sensitive = is_case_sensitive(df.sparkSession)
    fit = _ColumnFit(case_sensitive)
    names = {fold_case(field.name, case_sensitive) for field in data_schema.fields}
    generated = [
        field
        for field in table.fields
        if GENERATED in field.metadata and fold_case(field.name, case_sensitive) not in names
    ]
    stored = StructType(tuple(field for field in table.fields if field not in generated))
    columns = fit.cast_fields(stored, data_schema, "", lambda name: f.col(quote_name(name)))
    refuse_problems(fit.problems, "merge_schema=True adds columns to the table" if fit.has_unknown else "")
    rows = df.select(*columns, *beside)
    return add_generated_columns(rows, table, {field.name: None for field in generated})


class _ColumnFit:
    """What has to be done to the columns of a DataFrame, and what stands against it."""

    def __init__(self, case_sensitive: bool) -> None:
        self.problems: list[str] = []
        self.has_unknown = False
        self._case_sensitive = case_sensitive

    def cast_fields(
        self, table: StructType, given: StructType, path: str, column: Callable[[str], Column]
    ) -> list[Column]:
        """The fields of a struct, or of a row, by the names and in the order of the table."""
        from pyspark.sql import functions as f

        fields_by_name = {fold_case(field.name, self._case_sensitive): field for field in given.fields}
        self._check_names(table, given, path)
        columns = []
        for field in table.fields:
            name = join_path(path, field.name)
            data_field = fields_by_name.get(fold_case(field.name, self._case_sensitive))
            if data_field is not None:
                self._check_identity(field)
                made = self.cast_value(
                    field.type,
                    data_field.type,
                    name,
                    column(data_field.name),
                    field.nullable or not data_field.nullable,
                )
            elif not path and CURRENT_DEFAULT in field.metadata:
                made = make_default(field)
            else:
                made = f.lit(None).cast(_spark_type(field.type))
                if not field.nullable and get_identity_column(field) is None:
                    self.problems.append(f"the data lacks the column '{name}', which is not nullable")
            columns.append(made.alias(field.name))
        return columns

    def cast_value(self, wanted: Type, given: Type, path: str, column: Column, may_be_null: bool) -> Column:
        """A value as one of the wanted type. ``may_be_null``: nulls are welcome, or there are none."""
        fit = self._cast_column(wanted, given, path, column)
        if may_be_null:
            return fit
        from pyspark.sql import functions as f

        error = make_refusal_column(f"the column '{path}' is not nullable, but the data has nulls in it")
        return f.when(column.isNull(), error).otherwise(fit)

    def _cast_column(self, wanted: Type, given: Type, path: str, column: Column) -> Column:
        if _is_same_type(wanted, given):
            return column
        match wanted, given:
            case StructType(), StructType():
                return self._cast_struct(wanted, given, path, column)
            case ArrayType(), ArrayType():
                return self._cast_array(wanted, given, path, column)
            case MapType(), MapType():
                return self._cast_map(wanted, given, path, column)
        if not _may_widen(given, wanted):
            hint = ""
            if wanted in _TIMES and given in _TIMES:
                hint = ", and the time zone of its values is not known"
            self.problems.append(
                f"'{path}' has the type {_describe_type(wanted)}, "
                f"but the data has {_describe_type(given)}{hint}"
            )
        return column.cast(_spark_type(wanted))

    def _cast_struct(self, wanted: StructType, given: StructType, path: str, column: Column) -> Column:
        from pyspark.sql import functions as f

        made = f.struct(*self.cast_fields(wanted, given, path, column.getField))
        return f.when(column.isNotNull(), made)

    def _cast_array(self, wanted: ArrayType, given: ArrayType, path: str, column: Column) -> Column:
        from pyspark.sql import functions as f

        may_be_null = wanted.contains_null or not given.contains_null
        return f.transform(
            column,
            lambda one: self.cast_value(
                wanted.element_type, given.element_type, f"{path}.element", one, may_be_null
            ),
        )

    def _cast_map(self, wanted: MapType, given: MapType, path: str, column: Column) -> Column:
        from pyspark.sql import functions as f

        may_be_null = wanted.value_contains_null or not given.value_contains_null
        if not _is_same_type(wanted.key_type, given.key_type):
            column = f.transform_keys(
                column,
                lambda key, _: self.cast_value(wanted.key_type, given.key_type, f"{path}.key", key, True),
            )
        return f.transform_values(
            column,
            lambda _, one: self.cast_value(
                wanted.value_type, given.value_type, f"{path}.value", one, may_be_null
            ),
        )

    def _check_identity(self, field: Field) -> None:
        """A problem if rows come with numbers that only the table gives."""
        identity = get_identity_column(field)
        if identity is not None and not identity.allows_explicit:
            self.problems.append(
                f"'{field.name}' is an identity column, whose numbers the table assigns: leave the column out"
            )

    def _check_names(self, table: StructType, given: StructType, path: str) -> None:
        seen: set[str] = set()
        names = {fold_case(field.name, self._case_sensitive) for field in table.fields}
        for field_given in given.fields:
            name = join_path(path, field_given.name)
            if field_given.name.lower() in seen:
                self.problems.append(f"the data has the column '{name}' twice")
            elif fold_case(field_given.name, self._case_sensitive) not in names:
                self.has_unknown = True
                self.problems.append(f"the table has no column '{name}'")
            seen.add(field_given.name.lower())


def _is_same_type(wanted: Type, given: Type) -> bool:
    """Whether values need nothing done to them: types, names and their order are the same, and no null is in
    the way."""
    match wanted, given:
        case StructType(), StructType():
            return len(wanted.fields) == len(given.fields) and all(
                wanted_field.name == given_field.name
                and (wanted_field.nullable or not given_field.nullable)
                and _is_same_type(wanted_field.type, given_field.type)
                for wanted_field, given_field in zip(wanted.fields, given.fields, strict=True)
            )
        case ArrayType(), ArrayType():
            return (wanted.contains_null or not given.contains_null) and _is_same_type(
                wanted.element_type, given.element_type
            )
        case MapType(), MapType():
            return (
                (wanted.value_contains_null or not given.value_contains_null)
                and _is_same_type(wanted.key_type, given.key_type)
                and _is_same_type(wanted.value_type, given.value_type)
            )
        case str(), str():
            return wanted.replace(" ", "") == given.replace(" ", "")
        case _:
            return False


def _may_widen(given: Type, wanted: Type) -> bool:
    """Whether every value of a type is one of another."""
    if given == VOID:
        return True
    if not isinstance(given, str) or not isinstance(wanted, str):
        return False
    if wanted in _WIDER.get(given, ()):
        return True
    wanted_decimal, given_decimal = DECIMAL.fullmatch(wanted), DECIMAL.fullmatch(given)
    if wanted_decimal is None:
        return False
    whole, scale = int(wanted_decimal[1]) - int(wanted_decimal[2]), int(wanted_decimal[2])
    if given_decimal is None:
        return given in _DIGITS and whole >= _DIGITS[given]
    return scale >= int(given_decimal[2]) and whole >= int(given_decimal[1]) - int(given_decimal[2])


def _spark_type(kind: Type) -> DataType:
    (field,) = to_spark_schema(StructType((Field(name="value", type=kind, nullable=True),))).fields
    return field.dataType


def _describe_type(kind: Type) -> str:
    match kind:
        case StructType():
            return (
                f"struct<{', '.join(f'{field.name}: {_describe_type(field.type)}' for field in kind.fields)}>"
            )
        case ArrayType():
            return f"array<{_describe_type(kind.element_type)}>"
        case MapType():
            return f"map<{_describe_type(kind.key_type)}, {_describe_type(kind.value_type)}>"
        case _:
            return kind
