"""Expressions over rows, evaluated by Arrow as Spark evaluates them in its ANSI mode.

Sums that overflow and divisions by zero are errors. So are values that a type cannot hold. A branch of
``case`` is evaluated only for the rows that it is chosen for, and so is a part of ``and`` and ``or`` that
could fail, so that ``b <> 0 and a / b > 1`` does not.

A comparison of a column with a literal is a condition of ``predicates``: it means here what it means to
``Table.to_arrow``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from penstock.errors import InvalidRequest
from penstock.formats.rows.arrow_types import find_arrow_type, pa, pc
from penstock.formats.rows.conversions import REAL, VOID, convert_values, find_common_type
from penstock.formats.rows.positions import find_true, number_rows, scatter_values
from penstock.formats.rows.predicate_parser import SqlLiteral
from penstock.formats.rows.predicates import And, Not, Or, Predicate, list_columns
from penstock.formats.rows.row_filter import evaluate_predicate
from penstock.formats.rows.schema import Field, Type

TABLE: Final = "table"
"""What expressions over the rows of one table call it, where they call it anything."""

_COMPARE: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_ARITHMETIC: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "+": pc.add_checked,
    "-": pc.subtract_checked,
    "*": pc.multiply_checked,
    "/": pc.divide_checked,
    "div": pc.divide_checked,
}
_MAY_FAIL: Final = frozenset({"abs", "negative", "floor", "ceil"})


class RowFrames(NamedTuple):
    """Rows side by side: a batch for each table that an expression can name, all of the same length."""

    batches: Mapping[str, Any]
    num_rows: int

    @classmethod
    def of(cls, **batches: Any) -> RowFrames:
        return cls(batches, next(iter(batches.values())).num_rows)

    def take(self, positions: Any) -> RowFrames:
        batches = {name: batch.take(positions) for name, batch in self.batches.items()}
        return RowFrames(batches, len(positions))


class RowExpression:
    """A value of each row."""

    kind: Type

    def evaluate(self, rows: RowFrames) -> Any:
        """The values as an Arrow array of ``kind``. ``pa.ArrowException`` if one cannot be computed."""
        raise NotImplementedError

    @property
    def operands(self) -> tuple[RowExpression, ...]:
        return ()

    @property
    def may_fail(self) -> bool:
        """Whether there are values for which it cannot be computed."""
        return any(operand.may_fail for operand in self.operands)

    def columns(self) -> Iterator[tuple[str, str]]:
        """The columns that it needs, each with the table that has it; some may come twice."""
        for operand in self.operands:
            yield from operand.columns()


@dataclass(frozen=True)
class ColumnValue(RowExpression):
    """A column of a table, or a part of a struct."""

    table: str
    fields: tuple[Field, ...]

    @property
    def kind(self) -> Type:  # type: ignore[override]
        return self.fields[-1].type

    def evaluate(self, rows: RowFrames) -> Any:
        array = rows.batches[self.table].column(self.fields[0].name)
        for field in self.fields[1:]:
            array = pc.struct_field(array, field.name)
        return array

    def columns(self) -> Iterator[tuple[str, str]]:
        yield self.table, self.fields[0].name


@dataclass(frozen=True)
class LiteralValue(RowExpression):
    """A value that is the same for all rows."""

    value: Any
    kind: Type
    spelled: SqlLiteral | None = None
    """As the text has it, unless it is computed."""

    def evaluate(self, rows: RowFrames) -> Any:
        if self.kind == VOID or self.value is None:
            return pa.nulls(rows.num_rows, pa.null() if self.kind == VOID else find_arrow_type(self.kind))
        return pa.repeat(pa.scalar(self.value, find_arrow_type(self.kind)), rows.num_rows)


@dataclass(frozen=True)
class PredicateTest(RowExpression):
    """A condition on columns of one table, compared with literals."""

    table: str
    predicate: Predicate
    kind = "boolean"

    def evaluate(self, rows: RowFrames) -> Any:
        return evaluate_predicate(self.predicate, rows.batches[self.table])

    def columns(self) -> Iterator[tuple[str, str]]:
        yield from ((self.table, column.path[0]) for column in list_columns(self.predicate))


@dataclass(frozen=True)
class AndOrExpression(RowExpression):
    """Conditions put together by ``and`` or ``or``."""

    word: str
    parts: tuple[RowExpression, ...]
    kind = "boolean"

    @property
    def operands(self) -> tuple[RowExpression, ...]:
        return self.parts

    def evaluate(self, rows: RowFrames) -> Any:
        is_and = self.word == "and"
        combine = pc.and_kleene if is_and else pc.or_kleene
        result = _evaluate_condition(self.parts[0], rows)
        for part in self.parts[1:]:
            if part.may_fail:
                is_open = pc.fill_null(result, is_and) if is_and else pc.invert(pc.fill_null(result, False))
                positions = find_true(is_open)
                values = _evaluate_condition(part, rows.take(positions))
                result = combine(result, scatter_values(is_open, values))
            else:
                result = combine(result, _evaluate_condition(part, rows))
        return result


@dataclass(frozen=True)
class Negation(RowExpression):
    """The opposite of a condition; neither stays neither."""

    inner: RowExpression
    kind = "boolean"

    @property
    def operands(self) -> tuple[RowExpression, ...]:
        return (self.inner,)

    def evaluate(self, rows: RowFrames) -> Any:
        return pc.invert(_evaluate_condition(self.inner, rows))


@dataclass(frozen=True)
class NullTest(RowExpression):
    """Whether a value is null."""

    inner: RowExpression
    kind = "boolean"

    @property
    def operands(self) -> tuple[RowExpression, ...]:
        return (self.inner,)

    def evaluate(self, rows: RowFrames) -> Any:
        return pc.is_null(self.inner.evaluate(rows))


@dataclass(frozen=True)
class ValueComparison(RowExpression):
    """Two values of one type compared. NaN equals itself and is larger than every other number."""

    operator: str
    first: RowExpression
    second: RowExpression
    kind = "boolean"

    @property
    def operands(self) -> tuple[RowExpression, ...]:
        return (self.first, self.second)

    def evaluate(self, rows: RowFrames) -> Any:
        first, second = self.first.evaluate(rows), self.second.evaluate(rows)
        if self.first.kind == VOID or self.second.kind == VOID:
            return pa.nulls(rows.num_rows, pa.bool_())
        result = _COMPARE[self.operator](first, second)
        return self._with_nans(result, first, second) if self.first.kind in REAL else result

    def _with_nans(self, result: Any, first: Any, second: Any) -> Any:
        first_nan, second_nan = pc.is_nan(first), pc.is_nan(second)
        # Ranked by whether they are NaN, values compare as whether they are: false is less than true.
        either = pc.or_(first_nan, second_nan)
        ranked = _COMPARE[self.operator](first_nan.cast(pa.int8()), second_nan.cast(pa.int8()))
        return pc.if_else(either, ranked, result)


@dataclass(frozen=True)
class Arithmetic(RowExpression):
    """Two numbers of one type put together."""

    operator: str
    first: RowExpression
    second: RowExpression
    kind: Type

    @property
    def operands(self) -> tuple[RowExpression, ...]:
        return (self.first, self.second)

    @property
    def may_fail(self) -> bool:
        return self.kind not in REAL or self.operator in ("/", "%") or super().may_fail

    def evaluate(self, rows: RowFrames) -> Any:
        first, second = self.first.evaluate(rows), self.second.evaluate(rows)
        if self.operator in ("/", "%", "div"):
            zeros = pc.and_(pc.equal(second, pa.scalar(0, second.type)), pc.is_valid(first))
            if pc.any(zeros).as_py():
                raise pa.ArrowInvalid("division by zero")
            second = pc.if_else(pc.is_valid(first), second, pa.scalar(None, second.type))
        if self.operator == "%":
            return _compute_remainders(first, second)
        return _ARITHMETIC[self.operator](first, second).cast(find_arrow_type(self.kind))


def _compute_remainders(first: Any, second: Any) -> Any:
    if not pa.types.is_floating(first.type):
        # The smallest number has no quotient by -1, but a remainder.
        second = pc.if_else(pc.equal(second, -1), pa.scalar(1, second.type), second)
        return pc.subtract(first, pc.multiply(pc.divide_checked(first, second), second))
    pairs = zip(first.to_pylist(), second.to_pylist(), strict=True)
    return pa.array([_compute_remainder(*pair) for pair in pairs], first.type)


def _compute_remainder(first: float | None, second: float | None) -> float | None:
    if first is None or second is None:
        return None
    return math.nan if math.isinf(first) else math.fmod(first, second)


@dataclass(frozen=True)
class Conversion(RowExpression):
    """A value as one of another type."""

    inner: RowExpression
    kind: Type

    @property
    def operands(self) -> tuple[RowExpression, ...]:
        return (self.inner,)

    @property
    def may_fail(self) -> bool:
        return find_common_type(self.inner.kind, self.kind) != self.kind or super().may_fail

    def evaluate(self, rows: RowFrames) -> Any:
        return convert_values(self.inner.evaluate(rows), self.inner.kind, self.kind)


@dataclass(frozen=True)
class CaseChoice(RowExpression):
    """The value of the first branch whose condition is true."""

    branches: tuple[tuple[RowExpression, RowExpression], ...]
    otherwise: RowExpression
    kind: Type

    @property
    def operands(self) -> tuple[RowExpression, ...]:
        return (*(part for branch in self.branches for part in branch), self.otherwise)

    def evaluate(self, rows: RowFrames) -> Any:
        if not self.may_fail:
            return self._choose(rows)
        open_positions = number_rows(rows.num_rows)
        places, arrays = [], []
        for condition, value in self.branches:
            is_chosen = pc.fill_null(_evaluate_condition(condition, rows.take(open_positions)), False)
            chosen = open_positions.filter(is_chosen)
            open_positions = open_positions.filter(pc.invert(is_chosen))
            places.append(chosen)
            arrays.append(value.evaluate(rows.take(chosen)))
        places.append(open_positions)
        arrays.append(self.otherwise.evaluate(rows.take(open_positions)))
        return pa.concat_arrays(arrays).take(pc.sort_indices(pa.concat_arrays(places)))

    def _choose(self, rows: RowFrames) -> Any:
        """Choose from branches that are all evaluated for all rows."""
        chosen = self.otherwise.evaluate(rows)
        for condition, value in reversed(self.branches):
            is_chosen = pc.fill_null(_evaluate_condition(condition, rows), False)
            chosen = pc.if_else(is_chosen, value.evaluate(rows), chosen)
        return chosen


@dataclass(frozen=True)
class FunctionCall(RowExpression):
    """A function of Spark's SQL."""

    name: str
    arguments: tuple[RowExpression, ...]
    kind: Type
    compute: Callable[..., Any]
    """From the values of each argument."""

    @property
    def operands(self) -> tuple[RowExpression, ...]:
        return self.arguments

    @property
    def may_fail(self) -> bool:
        return self.name in _MAY_FAIL or super().may_fail

    def evaluate(self, rows: RowFrames) -> Any:
        return self.compute(*(argument.evaluate(rows) for argument in self.arguments))


class SqlExpression(NamedTuple):
    """An expression, and the text that it was written as."""

    text: str
    root: RowExpression

    def evaluate(self, rows: RowFrames) -> Any:
        """The values; ``InvalidRequest`` if one cannot be computed."""
        try:
            return self.root.evaluate(rows)
        except pa.ArrowException as problem:
            raise InvalidRequest(f"{self.text!r} cannot be evaluated for all rows: {problem}") from None

    def is_true(self, rows: RowFrames) -> Any:
        """Of each row whether the condition is true."""
        return pc.fill_null(self.evaluate(rows), False)

    def list_columns_of(self, table: str) -> set[str]:
        return {name for owner, name in self.root.columns() if owner == table}

    def tables(self) -> set[str]:
        return {owner for owner, _ in self.root.columns()}


def list_joined_parts(expression: RowExpression) -> Iterator[RowExpression]:
    """The parts of a condition that must all be true."""
    if isinstance(expression, AndOrExpression) and expression.word == "and":
        for part in expression.parts:
            yield from list_joined_parts(part)
    else:
        yield expression


def find_needed_predicate(expression: RowExpression, table: str) -> Predicate | None:
    """What must be true of the rows of a table for a condition to be true, as far as it can be told."""
    parts = [_to_predicate(part, table) for part in list_joined_parts(expression)]
    needed = tuple(part for part in parts if part is not None)
    if len(needed) < 2:
        return needed[0] if needed else None
    return And(needed)


def _to_predicate(expression: RowExpression, table: str) -> Predicate | None:
    match expression:
        case PredicateTest(table=owner, predicate=predicate) if owner == table:
            return predicate
        case Negation(inner=inner):
            negated = _to_predicate(inner, table)
            return None if negated is None else Not(negated)
        case AndOrExpression(word=word, parts=parts):
            predicates = [_to_predicate(part, table) for part in parts]
            complete = tuple(part for part in predicates if part is not None)
            if len(complete) < len(parts):
                return None
            return Or(complete) if word == "or" else And(complete)
        case _:
            return None


def join_conditions(conditions: Sequence[RowExpression]) -> RowExpression:
    """A condition that is true where all of some are."""
    return conditions[0] if len(conditions) == 1 else AndOrExpression("and", tuple(conditions))


def _evaluate_condition(expression: RowExpression, rows: RowFrames) -> Any:
    values = expression.evaluate(rows)
    return values.cast(pa.bool_()) if expression.kind == VOID else values
