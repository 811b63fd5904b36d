"""Conditions on rows, as text like SQL's: ``day = '2026-11-14' and amount > 10``.

There are ``=``, ``!=`` (``<>``), ``<``, ``<=``, ``>``, ``>=``, ``in (…)``, ``between … and …``,
``like 'a%'`` and ``is null``, with ``not`` where SQL has it, put together by ``and``, ``or``, ``not`` and
parentheses. Names of columns need no quotes unless they hold odd characters (```odd name```); a part of a
struct is ``address.city``. A literal is read as the type of the column that it is compared with; a time
without a zone is UTC, and a date is the midnight at which it begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NamedTuple, TypeAlias

from penstock.errors import InvalidRequest
from penstock.formats.rows.partition_values import Value, parse_value
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
    to_utc,
)
from penstock.formats.rows.schema import ArrayType, Field, MapType, StructType
from penstock.formats.rows.sql_reader import MIRRORED, SqlReader, SqlToken
from penstock.model.similar_names import describe_names

DECIMAL_DIGITS_MAX: Final = 38
_WORDS: Final = frozenset({"and", "or", "not", "in", "is", "null", "between", "like", "true", "false"})
_WHOLE: Final = frozenset({"byte", "short", "integer", "long"})


class SqlLiteral(NamedTuple):
    """A literal as it is spelled, and what is between its quotes."""

    token: SqlToken
    text: str


_Operand: TypeAlias = Predicate | Column | SqlLiteral


def parse_predicate(text: str, schema: StructType) -> Predicate:
    """The condition that a text stands for. ``InvalidRequest`` says where it is wrong, and how."""
    return _Parser(text, schema).parse()


class _Parser(SqlReader[_Operand, Predicate]):
    """Conditions that compare columns with literals."""

    subject, following = "condition", "'and', 'or' or the end"

    def __init__(self, text: str, schema: StructType) -> None:
        super().__init__(text)
        self._schema = schema

    def _parse_operand(self, first: _Operand | None = None) -> _Operand:
        if isinstance(first, Column):
            return self._parse_literal()
        if first is None and self._skip_if_next("("):
            inner = self._parse_or()
            self._expect(")")
            return inner
        literal = self._literal_or_none() if first is None else None
        return self._parse_column() if literal is None else literal

    def _make_comparison(self, first: _Operand, operator: str, second: _Operand) -> Predicate:
        if isinstance(first, SqlLiteral):
            first, operator, second = second, MIRRORED[operator], first
        assert isinstance(second, SqlLiteral)  # as the other side of a column
        column = self._require_column(first)
        return ComparedValues(column, operator, read_literal(column, second))

    def _is_null(self, first: _Operand) -> Predicate:
        return IsNull(self._require_column(first))

    def _is_one_of(self, first: _Operand, others: Sequence[_Operand]) -> Predicate:
        column = self._require_column(first)
        literals = (other for other in others if isinstance(other, SqlLiteral))
        return OneOf(column, tuple(read_literal(column, literal) for literal in literals))

    def _is_like(self, first: _Operand, pattern: _Operand) -> Predicate:
        column = self._require_column(first)
        assert isinstance(pattern, SqlLiteral)  # as the other side of a column
        if column.kind != "string" or pattern.token.kind != "text":
            raise InvalidRequest(
                f"'like' compares a string column with a string literal, but '{column}' is "
                f"{_type_in_words(column)}"
            )
        return Like(column, pattern.text)

    def _to_condition(self, first: _Operand) -> Predicate:
        if isinstance(first, Column | SqlLiteral):
            self._fail(self._peek(), "a comparison")
        return first

    def _join_conditions(self, keyword: str, parts: Sequence[Predicate]) -> Predicate:
        return Or(tuple(parts)) if keyword == "or" else And(tuple(parts))

    def _negate_condition(self, condition: Predicate) -> Predicate:
        return Not(condition)

    def _require_column(self, operand: _Operand) -> Column:
        if not isinstance(operand, Column):
            raise InvalidRequest(
                f"the condition {self._text!r} compares something other than a column with a literal"
            )
        return operand

    def _parse_column(self) -> Column:
        token = self._take_token()
        if token.kind not in {"word", "quoted"} or token.word in _WORDS:
            self._fail(token, "the name of a column")
        fields = [self._find_field(self._schema, token, "")]
        while self._skip_if_next("."):
            token = self._take_token()
            if token.kind not in {"word", "quoted"}:
                self._fail(token, "the name of a part of the column")
            inside, above = fields[-1].type, ".".join(field.name for field in fields)
            if not isinstance(inside, StructType):
                raise InvalidRequest(
                    f"the column '{above}' has no field '{token.content}': it is not a struct"
                )
            fields.append(self._find_field(inside, token, above))
        return Column(tuple(fields))

    def _find_field(self, schema: StructType, token: SqlToken, above: str) -> Field:
        name = token.content
        schema_field = schema.field(name)
        if schema_field is None and self._skip_if_next("("):
            raise InvalidRequest(
                f"the condition {self._text!r} calls the function '{name}', and a condition here can only "
                "compare columns with literals; for other conditions, use lake.sql(…) or Spark"
            )
        if schema_field is None:
            choices = describe_names(name, [field.name for field in schema.fields])
            what = f"column '{above}' has no part" if above else "table has no column"
            raise InvalidRequest(f"the {what} '{name}'{choices}", column=name)
        return schema_field

    def _parse_literal(self) -> SqlLiteral:
        literal = self._literal_or_none()
        if literal is None:
            token = self._peek()
            if token.word == "null":
                raise InvalidRequest("a comparison with null is never true; write 'is null' or 'is not null'")
            self._fail(token, "a literal, such as 10, 'text' or true")
        return literal

    def _literal_or_none(self) -> SqlLiteral | None:
        token, following = self._peek(), self._peek(1)
        if token.word in {"date", "timestamp"} and following.kind == "text":
            self._take_token()
            token = following
        if token.text in {"-", "+"} and following.kind == "number":
            self._take_token()
            token = following._replace(text=f"{token.text}{following.text}", at=token.at)
        if token.kind in {"text", "number"} or token.word in {"true", "false"}:
            self._take_token()
            return SqlLiteral(token, token.content if token.kind == "text" else token.text.lower())
        return None


def read_literal(column: Column, literal: SqlLiteral) -> Value:
    """A literal as a value of the type of the column that it is compared with."""
    kind = column.kind
    if not isinstance(kind, str) or kind in {"binary", "void", "variant"}:
        raise InvalidRequest(
            f"the column '{column}' is {_type_in_words(column)}; a condition on it can only be 'is "
            "null' or 'is not null'"
        )
    try:
        return read_value(kind, literal)
    except ValueError as problem:
        raise InvalidRequest(
            f"{literal.token.text} cannot be compared with the column '{column}', "
            f"which is {_type_in_words(column)}: {problem}",
            column=str(column),
        ) from None


def _type_in_words(column: Column) -> str:
    match column.kind:
        case str() as name:
            return f"of the type {name}"
        case ArrayType():
            return "an array"
        case MapType():
            return "a map"
        case _:
            return "a struct"


def read_value(kind: str, literal: SqlLiteral) -> Value:
    """A literal as a value of a plain type. ``ValueError`` says why it is none."""
    token, text = literal
    if (kind == "boolean") != (token.kind == "word"):
        raise ValueError("only boolean columns are compared with true and false")
    if kind in {"string", "date", "timestamp", "timestamp_ntz"} and token.kind != "text":
        raise ValueError(f"a {kind} value is written in single quotes")
    if kind == "string":
        return text
    if kind in _WHOLE:
        # Any whole number may be compared with a narrow column, also one that it cannot hold.
        return parse_value("long", _require_text(text))
    if kind in {"float", "double"}:
        number: Any = parse_value(kind, _require_text(text))
        return to_float(number) if kind == "float" else number
    if kind.startswith("decimal"):
        return _parse_decimal(_require_text(text))
    if kind in {"timestamp", "timestamp_ntz"}:
        return _parse_moment(kind, text)
    return parse_value(kind, _require_text(text))


def _require_text(text: str) -> str:
    if not text:
        raise ValueError("the text is empty")
    return text


def _parse_decimal(text: str) -> Decimal:
    """A number, also one with more digits than the column: then it equals none of its values."""
    try:
        value = Decimal(text)
    except InvalidOperation:
        raise ValueError("not a decimal number") from None
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int) or max(len(digits) + max(exponent, 0), -exponent) > DECIMAL_DIGITS_MAX:
        raise ValueError(f"not a decimal number of at most {DECIMAL_DIGITS_MAX} digits")
    return value


def _parse_moment(kind: str, text: str) -> datetime:
    is_date = len(text) == len("2026-11-14")
    moment = parse_value(kind, f"{text} 00:00:00" if is_date else _require_text(text))
    assert isinstance(moment, datetime)  # what a text that is not empty stands for
    return to_utc(moment) if kind == "timestamp" else moment
