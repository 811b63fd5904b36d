"""Conditions on rows, as text like SQL's: ``day = '2026-11-14' and amount > 10``.

There are ``=``, ``!=`` (``<>``), ``<``, ``<=``, ``>``, ``>=``, ``in (…)``, ``between … and …``,
``like 'a%'`` and ``is null``, with ``not`` where SQL has it, put together by ``and``, ``or``, ``not`` and
parentheses. Names of columns need no quotes unless they hold odd characters (```odd name```); a part of a
struct is ``address.city``. A literal is read as the type of the column that it is compared with; a time
without a zone is UTC, and a date is the midnight at which it begins.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NamedTuple, NoReturn

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
    as_float,
    in_utc,
)
from penstock.formats.rows.schema import ArrayType, Field, MapType, StructType

DEPTH_MAX: Final = 64
"""How deeply conditions may be nested."""
DECIMAL_DIGITS_MAX: Final = 38


def parse_predicate(text: str, schema: StructType) -> Predicate:
    """The condition that a text stands for. ``InvalidRequest`` says where it is wrong, and how."""
    return _Parser(text, schema).parse()


_TOKENS: Final = re.compile(
    r"\s*(?:"
    r"(?P<text>'(?:[^']|'')*')"
    r"|(?P<quoted>`(?:[^`]|``)+`|\"(?:[^\"]|\"\")+\")"
    r"|(?P<number>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?![\w.]))"
    r"|(?P<word>[^\W\d]\w*)"
    r"|(?P<sign><=|>=|<>|!=|==|[=<>(),.])"
    r")"
)
_OPERATORS: Final = {"=": "=", "==": "=", "!=": "!=", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "!=": "!="}
_WORDS: Final = frozenset({"and", "or", "not", "in", "is", "null", "between", "like", "true", "false"})
_WHOLE: Final = frozenset({"byte", "short", "integer", "long"})


class _Token(NamedTuple):
    kind: str
    text: str
    at: int

    @property
    def word(self) -> str:
        """In lower case if it may be a keyword: what is quoted is a name."""
        return self.text.lower() if self.kind == "word" else ""


class _Literal(NamedTuple):
    token: _Token
    text: str


class _Parser:
    """Reads a condition from left to right: ``or`` binds least, then ``and``, then ``not``."""

    def __init__(self, text: str, schema: StructType) -> None:
        self._text, self._schema = text, schema
        self._tokens = list(self._split(text))
        self._next, self._depth = 0, 0

    def parse(self) -> Predicate:
        found = self._either()
        if self._peek().kind != "end":
            self._fail(self._peek(), "'and', 'or' or the end")
        return found

    def _either(self) -> Predicate:
        return self._chain("or", self._both, Or)

    def _both(self) -> Predicate:
        return self._chain("and", self._one, And)

    def _chain(
        self, word: str, part: Callable[[], Predicate], whole: Callable[[tuple[Predicate, ...]], Predicate]
    ) -> Predicate:
        parts = [part()]
        while self._takes(word):
            parts.append(part())
        return parts[0] if len(parts) == 1 else whole(tuple(parts))

    def _one(self) -> Predicate:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise InvalidRequest(f"the condition is nested more than {DEPTH_MAX} deep")
        try:
            if self._takes("not"):
                return Not(self._one())
            if self._takes("("):
                found = self._either()
                self._expect(")")
                return found
            return self._test()
        finally:
            self._depth -= 1

    def _test(self) -> Predicate:
        literal = self._literal_or_none()
        if literal is not None:
            operator = self._operator()
            column = self._column()
            return ComparedValues(column, _MIRRORED[operator], self._value(column, literal))
        column = self._column()
        if self._takes("is"):
            negated = self._takes("not")
            self._expect("null")
            return _unless(negated, IsNull(column))
        negated = self._takes("not")
        if self._takes("in"):
            return _unless(negated, OneOf(column, self._values(column)))
        if self._takes("between"):
            low = ComparedValues(column, ">=", self._value(column, self._literal()))
            self._expect("and")
            return _unless(
                negated, And((low, ComparedValues(column, "<=", self._value(column, self._literal()))))
            )
        if self._takes("like"):
            return _unless(negated, self._like(column))
        if negated:
            self._fail(self._peek(), "'in', 'between' or 'like' after 'not'")
        return ComparedValues(column, self._operator(), self._value(column, self._literal()))

    def _values(self, column: Column) -> tuple[Value, ...]:
        self._expect("(")
        values = [self._value(column, self._literal())]
        while self._takes(","):
            values.append(self._value(column, self._literal()))
        self._expect(")")
        return tuple(values)

    def _like(self, column: Column) -> Like:
        literal = self._literal()
        if column.kind != "string" or literal.token.kind != "text":
            raise InvalidRequest(
                f"'like' compares a column of text with a text, and '{column}' is {_said(column)}"
            )
        return Like(column, literal.text)

    def _column(self) -> Column:
        token = self._take()
        if token.kind not in {"word", "quoted"} or token.word in _WORDS:
            self._fail(token, "the name of a column")
        fields = [self._field(self._schema, token, "")]
        while self._takes("."):
            token = self._take()
            if token.kind not in {"word", "quoted"}:
                self._fail(token, "the name of a part of the column")
            inside, above = fields[-1].type, ".".join(one.name for one in fields)
            if not isinstance(inside, StructType):
                raise InvalidRequest(
                    f"the column '{above}' has no parts, and '{_unquoted(token)}' is asked for"
                )
            fields.append(self._field(inside, token, above))
        return Column(tuple(fields))

    def _field(self, schema: StructType, token: _Token, above: str) -> Field:
        name = _unquoted(token)
        found = schema.field(name)
        if found is None:
            known = ", ".join(one.name for one in schema.fields)
            what = f"column '{above}' has no part" if above else "table has no column"
            raise InvalidRequest(f"the {what} '{name}'; there are {known}", column=name)
        return found

    def _operator(self) -> str:
        token = self._take()
        if token.text not in _OPERATORS:
            self._fail(token, "a comparison")
        return _OPERATORS[token.text]

    def _literal(self) -> _Literal:
        found = self._literal_or_none()
        if found is None:
            token = self._peek()
            if token.word == "null":
                raise InvalidRequest(
                    "nothing is equal to null, or larger or smaller; write 'is null' or 'is not null'"
                )
            self._fail(token, "a literal, such as 10, 'text' or true")
        return found

    def _literal_or_none(self) -> _Literal | None:
        token, following = self._peek(), self._peek(1)
        if token.word in {"date", "timestamp"} and following.kind == "text":
            self._take()
            token = following
        if token.kind == "text":
            self._take()
            return _Literal(token, token.text[1:-1].replace("''", "'"))
        if token.kind == "number" or token.word in {"true", "false"}:
            self._take()
            return _Literal(token, token.text.lower())
        return None

    def _value(self, column: Column, literal: _Literal) -> Value:
        kind = column.kind
        if not isinstance(kind, str) or kind in {"binary", "void", "variant"}:
            raise InvalidRequest(
                f"the column '{column}' is {_said(column)}, which can only be asked whether it is null"
            )
        try:
            return _typed(kind, literal)
        except ValueError as problem:
            raise InvalidRequest(
                f"{literal.token.text} cannot be compared with the column '{column}', "
                f"which is {_said(column)}: {problem}",
                column=str(column),
            ) from None

    def _takes(self, text: str) -> bool:
        token = self._peek()
        if token.word == text or (token.kind == "sign" and token.text == text):
            self._next += 1
            return True
        return False

    def _expect(self, text: str) -> None:
        if not self._takes(text):
            self._fail(self._peek(), f"'{text}'")

    def _peek(self, further: int = 0) -> _Token:
        return self._tokens[min(self._next + further, len(self._tokens) - 1)]

    def _take(self) -> _Token:
        token = self._peek()
        self._next += 1
        return token

    def _split(self, text: str) -> Iterator[_Token]:
        at, end = 0, len(text.rstrip())
        while at < end:
            found = _TOKENS.match(text, at)
            if found is None or found.lastgroup is None:
                at += len(text[at:]) - len(text[at:].lstrip())
                self._fail(_Token("", text[at : at + 10], at), "a condition")
            yield _Token(found.lastgroup, found[found.lastgroup], found.start(found.lastgroup))
            at = found.end()
        yield _Token("end", "", end)

    def _fail(self, token: _Token, wanted: str) -> NoReturn:
        found = f"{token.text!r} at character {token.at + 1}" if token.text else "the end"
        raise InvalidRequest(f"the condition {self._text!r} has {found}, where {wanted} should be")


def _unless(negated: bool, found: Predicate) -> Predicate:
    return Not(found) if negated else found


def _unquoted(token: _Token) -> str:
    if token.kind != "quoted":
        return token.text
    mark = token.text[0]
    return token.text[1:-1].replace(mark * 2, mark)


def _said(column: Column) -> str:
    match column.kind:
        case str() as name:
            return f"of the type {name}"
        case ArrayType():
            return "an array"
        case MapType():
            return "a map"
        case _:
            return "a struct"


def _typed(kind: str, literal: _Literal) -> Value:
    """A literal as a value of a plain type. ``ValueError`` says why it is none."""
    token, text = literal
    if (kind == "boolean") != (token.kind == "word"):
        raise ValueError("true and false belong to boolean columns")
    if kind in {"string", "date", "timestamp", "timestamp_ntz"} and token.kind != "text":
        raise ValueError("put it into single quotes")
    if kind == "string":
        return text
    if kind in _WHOLE:
        # Any whole number may be compared with a narrow column, also one that it cannot hold.
        return parse_value("long", _needed(text))
    if kind in {"float", "double"}:
        found: Any = parse_value(kind, _needed(text))
        return as_float(found) if kind == "float" else found
    if kind.startswith("decimal"):
        return _decimal(_needed(text))
    if kind in {"timestamp", "timestamp_ntz"}:
        return _moment(kind, text)
    return parse_value(kind, _needed(text))


def _needed(text: str) -> str:
    if not text:
        raise ValueError("the text is empty")
    return text


def _decimal(text: str) -> Decimal:
    """A number, also one with more digits than the column: then it equals none of its values."""
    try:
        value = Decimal(text)
    except InvalidOperation:
        raise ValueError("not a decimal number") from None
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int) or len(digits) + abs(exponent) > DECIMAL_DIGITS_MAX:
        raise ValueError(f"not a decimal number of at most {DECIMAL_DIGITS_MAX} digits")
    return value


def _moment(kind: str, text: str) -> datetime:
    is_date = len(text) == len("2026-11-14")
    found = parse_value(kind, f"{text} 00:00:00" if is_date else _needed(text))
    assert isinstance(found, datetime)  # what a text that is not empty stands for
    return in_utc(found) if kind == "timestamp" else found
