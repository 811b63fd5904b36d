"""Expressions as SQL text: ``amount * 1.2``, ``coalesce(name, 'nobody')``, ``target.id = source.id``.

There are columns, literals, ``+ - * / % div``, ``||``, comparisons, ``in``, ``between``, ``like``,
``is null``, ``case``, ``cast`` and the functions of ``functions``. Names of columns need no quotes unless
they hold odd characters (```odd name```). Where there are two tables, a column that both have is ``target.x``
or ``source.x``. What is not known here is refused, and never guessed: Spark evaluates all of its SQL.

In a statement, a literal that a column is compared with is read as the column's type (``predicate_text``). An
expression that is stored with a table, as a default, a generated column or a constraint, is Spark's own: what
Spark may read in another way, by its version or its session, is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Final, NoReturn

from penstock.errors import InvalidRequest
from penstock.formats.rows.arrow_types import DECIMAL_DIGITS_MAX, find_arrow_type, pc
from penstock.formats.rows.conversions import (
    REAL,
    VOID,
    WHOLE,
    find_common_type,
    find_precision_and_scale,
    is_decimal,
    is_number,
    may_cast,
    may_store,
)
from penstock.formats.rows.functions import call_function
from penstock.formats.rows.partition_values import Value
from penstock.formats.rows.predicate_parser import SqlLiteral, read_literal, read_value
from penstock.formats.rows.predicates import Column, ComparedValues, IsNull, Like, OneOf
from penstock.formats.rows.row_expressions import (
    AndOrExpression,
    Arithmetic,
    CaseChoice,
    ColumnValue,
    Conversion,
    FunctionCall,
    LiteralValue,
    Negation,
    NullTest,
    PredicateTest,
    RowExpression,
    SqlExpression,
    ValueComparison,
)
from penstock.formats.rows.schema import Field, StructType, Type
from penstock.formats.rows.sql_reader import MIRRORED, SqlReader, SqlToken
from penstock.model.similar_names import describe_names

OPERATIONS_MAX: Final = 100
"""How many sums, products and concatenations an expression may have."""
SPARK_ADVICE: Final = "penstock.spark evaluates all of Spark's SQL"

_RESERVED: Final = frozenset(
    ("and", "or", "not", "in", "is", "null", "between", "like", "true", "false", "cast", "as")
) | {"case", "when", "then", "else", "end"}
SQL_TYPES: Final = {
    "tinyint": "byte", "byte": "byte", "smallint": "short", "short": "short", "int": "integer",
    "integer": "integer", "bigint": "long", "long": "long", "real": "float", "float": "float",
    "double": "double", "string": "string", "boolean": "boolean", "date": "date", "timestamp": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
}  # fmt: skip
_OTHERWISE_QUOTED: Final = re.compile(r"\\|\"|''")
"""To Spark ``"a"`` is a text, a backslash begins an escape, and ``''`` depends on its version."""
_ZONE: Final = re.compile(r"(?:Z|[+-][0-9]{2}:?[0-9]{2})$")
_READ_ALIKE: Final = frozenset({"date", "boolean", "double", *WHOLE})
"""Types that Spark reads a text as that is compared with them, in every mode."""


def parse_condition_text(
    text: str, tables: Mapping[str, StructType], *, is_stored: bool = False
) -> SqlExpression:
    """The condition that a text stands for. ``InvalidRequest`` says where it is wrong, and how."""
    expression = parse_expression(text, tables, is_stored=is_stored)
    if expression.root.kind not in ("boolean", VOID):
        raise InvalidRequest(
            f"{text!r} is not a condition: its type is {_spell_type(expression.root.kind)}, not boolean"
        )
    return expression


def parse_expression(
    text: str, tables: Mapping[str, StructType], *, is_stored: bool = False
) -> SqlExpression:
    """The expression that a text stands for, over the columns of some tables.

    One that ``is_stored`` with a table is refused if Spark may read it in another way.
    """
    if not isinstance(text, str):
        raise InvalidRequest(f"an expression must be a string of SQL, got a {type(text).__name__}")
    if is_stored and _OTHERWISE_QUOTED.search(text):
        raise InvalidRequest(
            f"{text!r} has quotes that Spark may interpret differently: use 'single "
            "quotes' for texts and `backquotes` for names"
        )
    return SqlExpression(text, _ExpressionParser(text, tables, is_stored=is_stored).parse())


def assign_value(expression: RowExpression, field: Field, name: str) -> RowExpression:
    """An expression as a value of a column. ``InvalidRequest`` if its type cannot be stored there."""
    kind, target = expression.kind, field.type
    if kind == target:
        return expression
    if not may_store(kind, target):
        hint = "; cast it" if may_cast(kind, target) else ""
        if isinstance(expression, LiteralValue) and kind == "string" and target in ("date", "timestamp"):
            hint = f"; write {target} {expression.value!r}"
        raise InvalidRequest(
            f"the column '{name}' has the type {_spell_type(target)}, but its new value has the type "
            f"{_spell_type(kind)}{hint}",
            column=name,
        )
    if isinstance(kind, str) and isinstance(target, str):
        return Conversion(expression, target)
    return expression  # rows are shaped by the names of parts before they are written


class _ExpressionParser(SqlReader[RowExpression, RowExpression]):
    """Sums bind less than products, and both bind more than comparisons."""

    subject, following = "expression", "an operator or the end"

    def __init__(self, text: str, tables: Mapping[str, StructType], *, is_stored: bool) -> None:
        super().__init__(text)
        self._tables, self._is_stored, self._operations = tables, is_stored, 0

    # -- conditions ----------------------------------------------------------------------------------------

    def _to_condition(self, first: RowExpression) -> RowExpression:
        return first  # a value by itself

    def _join_conditions(self, keyword: str, parts: Sequence[RowExpression]) -> RowExpression:
        return AndOrExpression(keyword, tuple(self._require_condition(part) for part in parts))

    def _negate_condition(self, condition: RowExpression) -> RowExpression:
        return Negation(self._require_condition(condition))

    def _require_condition(self, expression: RowExpression) -> RowExpression:
        if expression.kind not in ("boolean", VOID):
            self._refuse(f"a part of it is not a condition: {_spell_type(expression.kind)}")
        return expression

    def _make_comparison(self, first: RowExpression, operator: str, second: RowExpression) -> RowExpression:
        for side, other, sign in ((first, second, operator), (second, first, MIRRORED[operator])):
            if (
                isinstance(side, ColumnValue)
                and (values := self._convert_to_column_values(side, [other])) is not None
            ):
                return PredicateTest(side.table, ComparedValues(Column(side.fields), sign, values[0]))
        first, second = self._read_text(first, second.kind), self._read_text(second, first.kind)
        kind = find_common_type(first.kind, second.kind)
        if kind is None:
            self._refuse(
                f"{_spell_type(first.kind)} {operator} {_spell_type(second.kind)}: "
                "the types differ; cast one of them"
            )
        if not isinstance(kind, str):
            self._refuse(f"'{operator}' does not compare arrays, maps and structs")
        return ValueComparison(operator, _convert_to_type(first, kind), _convert_to_type(second, kind))

    def _is_null(self, first: RowExpression) -> RowExpression:
        if isinstance(first, ColumnValue):
            return PredicateTest(first.table, IsNull(Column(first.fields)))
        return NullTest(first)

    def _is_one_of(self, first: RowExpression, others: Sequence[RowExpression]) -> RowExpression:
        if (
            isinstance(first, ColumnValue)
            and (values := self._convert_to_column_values(first, others)) is not None
        ):
            return PredicateTest(first.table, OneOf(Column(first.fields), tuple(values)))
        tests = [self._make_comparison(first, "=", other) for other in others]
        return tests[0] if len(tests) == 1 else self._join_conditions("or", tests)

    def _is_like(self, first: RowExpression, pattern: RowExpression) -> RowExpression:
        if first.kind != "string" or not isinstance(pattern, LiteralValue) or pattern.kind != "string":
            self._refuse("'like' compares a text with a pattern in single quotes")
        if isinstance(first, ColumnValue):
            return PredicateTest(first.table, Like(Column(first.fields), pattern.value))
        return FunctionCall("like", (first,), "boolean", lambda texts: pc.match_like(texts, pattern.value))

    def _convert_to_column_values(
        self, column: ColumnValue, others: Sequence[RowExpression]
    ) -> list[Value] | None:
        """Literals as values of the column that a statement compares them with, by which files are left out;
        ``None`` if they are compared as what they are."""
        literals = [other for other in others if isinstance(other, LiteralValue) and other.spelled]
        is_read = all(_is_read_as(column.kind, literal.kind) for literal in literals)
        if self._is_stored or not is_read or len(literals) < len(others):
            return None
        return [
            read_literal(Column(column.fields), literal.spelled) for literal in literals if literal.spelled
        ]

    def _read_text(self, expression: RowExpression, other: Type) -> RowExpression:
        """A text literal as the type of what it is compared with."""
        is_text = isinstance(expression, LiteralValue) and expression.kind == "string"
        if not is_text or other in ("string", VOID) or not isinstance(other, str):
            return expression
        assert isinstance(expression, LiteralValue)
        if is_decimal(other) or (self._is_stored and other not in _READ_ALIKE):
            self._refuse(f"{expression.value!r} is compared with {other}; cast it")
        assert expression.spelled is not None  # as all texts
        try:
            return LiteralValue(read_value(other, expression.spelled), other)
        except ValueError as problem:
            self._refuse(f"{expression.value!r} is compared with {other}: {problem}")

    # -- values --------------------------------------------------------------------------------------------

    def _parse_operand(self, first: RowExpression | None = None) -> RowExpression:  # noqa: ARG002 - all are alike
        return self._parse_operations(("+", "-", "||"), self._parse_product)

    def _parse_product(self) -> RowExpression:
        return self._parse_operations(("*", "/", "%", "div"), self._parse_sign)

    def _parse_operations(self, signs: Sequence[str], read: Callable[[], RowExpression]) -> RowExpression:
        first = read()
        while (sign := self._peek().text.lower()) in signs:
            self._take_token()
            self._operations += 1
            if self._operations > OPERATIONS_MAX:
                self._refuse(f"it has more than {OPERATIONS_MAX} operations")
            second = read()
            is_text = sign == "||"
            first = (
                call_function("concat", (first, second))
                if is_text
                else self._make_arithmetic(sign, first, second)
            )
        return first

    def _parse_sign(self) -> RowExpression:
        if not self._skip_if_next("-"):
            self._skip_if_next("+")
            return self._parse_value()
        token = self._peek()
        if token.kind == "number":
            self._take_token()
            return self._parse_number(token._replace(text=f"-{token.text}"))
        with self._limit_nesting():
            return call_function("negative", (self._parse_sign(),))

    def _parse_value(self) -> RowExpression:
        token = self._take_token()
        if token.kind == "sign" and token.text == "(":
            inner = self._parse_or()
            self._expect(")")
            return inner
        if token.kind == "text":
            return LiteralValue(token.content, "string", SqlLiteral(token, token.content))
        if token.kind == "number":
            return self._parse_number(token)
        if token.word in ("true", "false"):
            return LiteralValue(token.word == "true", "boolean", SqlLiteral(token, token.word))
        if token.word == "null":
            return LiteralValue(None, VOID)
        if token.word == "case":
            return self._parse_case()
        if token.word == "cast":
            return self._parse_cast()
        if token.word in ("date", "timestamp", "timestamp_ntz") and self._peek().kind == "text":
            return self._parse_moment(token.word, self._take_token())
        if token.kind not in ("word", "quoted") or token.word in _RESERVED:
            self._fail(token, "a column, a literal or a function")
        if token.text.startswith('"'):
            self._fail(token, "a name in backquotes or a text in single quotes")
        if token.kind == "word" and self._peek().text == "(":
            return self._parse_function_call(token)
        if token.word in ("current_date", "current_timestamp"):
            return call_function(token.word, ())
        return self._parse_column(token)

    def _parse_number(self, token: SqlToken) -> RowExpression:
        text = token.text.lower()
        if text[-1] == "d" or "e" in text:
            return LiteralValue(float(text.rstrip("d")), "double", SqlLiteral(token, text))
        spelled = SqlLiteral(token, text.rstrip("l"))
        value = Decimal(spelled.text)
        _, digits, exponent = value.as_tuple()
        assert isinstance(exponent, int)  # of a finite number
        for kind, bits in (("integer", 31), ("long", 63)):
            is_meant = exponent == 0 and "." not in text and (kind == "long" or text[-1] != "l")
            if is_meant and -(1 << bits) <= value < 1 << bits:
                return LiteralValue(int(value), kind, spelled)
        precision = max(len(digits), -exponent)
        if precision > DECIMAL_DIGITS_MAX or text[-1] == "l":
            self._refuse(f"{token.text} has more digits than Spark's numbers")
        return LiteralValue(value, f"decimal({precision},{-exponent})", spelled)

    def _parse_moment(self, keyword: str, token: SqlToken) -> LiteralValue:
        literal = SqlLiteral(token, token.content)
        try:
            value = read_value(keyword, literal)
        except ValueError as problem:
            self._refuse(f"{token.text} is no {keyword}: {problem}")
        if keyword == "timestamp" and self._is_stored and not _ZONE.search(token.content):
            self._refuse(f"the zone of {token.text} depends on a session's")
        return LiteralValue(value, keyword, literal)

    def _parse_function_call(self, token: SqlToken) -> RowExpression:
        self._expect("(")
        arguments = [] if self._skip_if_next(")") else self._list(self._parse_or)
        if token.word in ("coalesce", "ifnull", "nvl", "if", "nullif"):
            return self._parse_choice_function(token.word, arguments)
        if token.word in ("greatest", "least"):
            arguments = self._all_same(arguments)
        return call_function(token.word, tuple(arguments))

    def _parse_choice_function(self, name: str, arguments: list[RowExpression]) -> RowExpression:
        """Functions that are a ``case`` in other words."""
        expected = {"if": 3, "nullif": 2, "ifnull": 2, "nvl": 2}.get(name, max(1, len(arguments)))
        if len(arguments) != expected:
            self._refuse(f"the function '{name}' takes {expected} arguments, not {len(arguments)}")
        if name == "if":
            condition, *values = arguments
            chosen, otherwise = self._all_same(values)
            return CaseChoice(((self._require_condition(condition), chosen),), otherwise, chosen.kind)
        if name == "nullif":
            value = arguments[0]
            return CaseChoice(
                ((self._make_comparison(value, "=", arguments[1]), LiteralValue(None, value.kind)),),
                value,
                value.kind,
            )
        *tried, last = self._all_same(arguments)
        return CaseChoice(tuple((Negation(NullTest(part)), part) for part in tried), last, last.kind)

    def _parse_case(self) -> RowExpression:
        subject = None if self._peek().word == "when" else self._parse_or()
        conditions, values = [], []
        while self._skip_if_next("when"):
            condition = self._parse_or()
            conditions.append(
                self._require_condition(condition)
                if subject is None
                else self._make_comparison(subject, "=", condition)
            )
            self._expect("then")
            values.append(self._parse_or())
        if not conditions:
            self._fail(self._peek(), "'when'")
        values.append(self._parse_or() if self._skip_if_next("else") else LiteralValue(None, VOID))
        self._expect("end")
        *chosen, otherwise = self._all_same(values)
        return CaseChoice(tuple(zip(conditions, chosen, strict=True)), otherwise, otherwise.kind)

    def _parse_cast(self) -> RowExpression:
        self._expect("(")
        inner = self._parse_or()
        self._expect("as")
        target = self._parse_type()
        self._expect(")")
        if not may_cast(inner.kind, target):
            self._refuse(f"{_spell_type(inner.kind)} is not cast to {target} here; {SPARK_ADVICE}")
        if self._is_stored and (inner.kind, target) == ("string", "timestamp"):
            self._refuse("the zone of a text that is cast to timestamp depends on a session's")
        return inner if inner.kind == target else Conversion(inner, target)

    def _parse_type(self) -> str:
        token = self._take_token()
        if token.word in ("decimal", "dec", "numeric"):
            precision, scale = 10, 0
            if self._skip_if_next("("):
                precision = self._parse_count()
                scale = self._parse_count() if self._skip_if_next(",") else 0
                self._expect(")")
            kind = f"decimal({precision},{scale})"
            if not 0 < precision <= DECIMAL_DIGITS_MAX or not 0 <= scale <= precision:
                self._refuse(f"there is no type {kind}")
            return kind
        if token.word not in SQL_TYPES:
            self._fail(token, "a type, such as bigint, double, string or date")
        return SQL_TYPES[token.word]

    def _parse_count(self) -> int:
        token = self._take_token()
        if not token.text.isdecimal():
            self._fail(token, "a number of digits")
        return int(token.text)

    def _parse_column(self, token: SqlToken) -> RowExpression:
        steps = [token]
        while self._skip_if_next("."):
            steps.append(self._take_token())
            if steps[-1].kind not in ("word", "quoted"):
                self._fail(steps[-1], "the name of a column")
        qualifier = steps[0].content.lower()
        if len(steps) > 1 and qualifier in self._tables and not self._holds_struct(qualifier):
            return self._named_column(qualifier, steps[1:])
        owners = [name for name, schema in self._tables.items() if schema.field(steps[0].content) is not None]
        if len(owners) > 1:
            shown = steps[0].content
            self._refuse(
                f"both tables have a column '{shown}'; say "
                + " or ".join(f"{name}.{shown}" for name in self._tables)
            )
        return self._named_column(owners[0] if owners else next(iter(self._tables)), steps)

    def _holds_struct(self, name: str) -> bool:
        """Whether the only table there is has a column of that name, with parts."""
        if len(self._tables) > 1:
            return False
        field = next(iter(self._tables.values())).field(name)
        return field is not None

    def _named_column(self, table: str, steps: Sequence[SqlToken]) -> RowExpression:
        inside: Type = self._tables[table]
        fields: list[Field] = []
        for step in steps:
            name = step.content
            field = inside.field(name) if isinstance(inside, StructType) else None
            if field is None:
                others = inside.fields if isinstance(inside, StructType) else ()
                names = describe_names(name, [other.name for other in others])
                owner = f"column '{fields[-1].name}' has no part" if fields else f"{table} has no column"
                what = owner if len(self._tables) > 1 or fields else "table has no column"
                raise InvalidRequest(f"the {what} '{name}'{names}", column=name)
            fields.append(field)
            inside = field.type
        return ColumnValue(table, tuple(fields))

    def _make_arithmetic(self, operator: str, first: RowExpression, second: RowExpression) -> RowExpression:
        for side in (first, second):
            if side.kind != VOID and not is_number(side.kind):
                self._refuse(f"'{operator}' takes numbers, not {_spell_type(side.kind)}; cast it")
        kinds = {first.kind, second.kind}
        kind = find_common_type(first.kind, second.kind)
        if self._is_stored and "float" in kinds and not kinds.isdisjoint(WHOLE):
            self._refuse("Spark adds up float and whole numbers by its mode; cast them to double")
        if kind is None:
            self._refuse(
                f"'{operator}' of {_spell_type(first.kind)} and {_spell_type(second.kind)}"
                " has too many digits"
            )
        if kind == VOID:
            return LiteralValue(None, "double")
        if is_decimal(kind):
            return self._decimal_arithmetic(operator, first, second)
        if operator == "div":
            if kind not in WHOLE:
                self._refuse(f"'div' takes whole numbers, not {_spell_type(kind)}; cast it")
            kind = "long"
        elif operator == "/":
            kind = "double"
        return Arithmetic(operator, _convert_to_type(first, kind), _convert_to_type(second, kind), kind)

    def _decimal_arithmetic(
        self, operator: str, first: RowExpression, second: RowExpression
    ) -> RowExpression:
        first_size, second_size = _get_decimal_size(first), _get_decimal_size(second)
        if operator in "+-":
            scale = max(first_size[1], second_size[1])
            precision = max(first_size[0] - first_size[1], second_size[0] - second_size[1]) + scale + 1
        elif operator == "*":
            precision, scale = first_size[0] + second_size[0] + 1, first_size[1] + second_size[1]
        else:
            self._refuse(f"'{operator}' of decimals is not computed here; cast one side to double")
        if precision > DECIMAL_DIGITS_MAX:
            self._refuse(
                f"'{operator}' of {_spell_type(first.kind)} and {_spell_type(second.kind)} "
                f"needs {precision} digits, and a decimal has {DECIMAL_DIGITS_MAX}; cast one side"
            )
        first, second = (
            _convert_to_type(side, f"decimal({digits},{places})")
            for side, (digits, places) in ((first, first_size), (second, second_size))
        )
        return Arithmetic(operator, first, second, f"decimal({precision},{scale})")

    def _all_same(self, values: Sequence[RowExpression]) -> list[RowExpression]:
        kind: Type = VOID
        for value in values:
            shared = find_common_type(kind, value.kind)
            if shared is None:
                self._refuse(
                    f"{_spell_type(kind)} and {_spell_type(value.kind)} are not of one type; cast one of them"
                )
            kind = shared
        return [_convert_to_type(value, kind) for value in values]

    def _refuse(self, why: str) -> NoReturn:
        raise InvalidRequest(f"{self._text!r} cannot be evaluated: {why}")


def _is_read_as(column: Type, literal: Type) -> bool:
    """Whether a literal is read as the type of the column that it is compared with. Others are compared as
    Spark does: 1.5 with whole numbers, a time with a date."""
    if column in WHOLE:
        return literal in WHOLE or not is_number(literal)
    if column in ("string", "date"):
        return literal not in ("timestamp", "timestamp_ntz") and (column, literal) != ("string", "date")
    return not (isinstance(column, str) and is_decimal(column) and literal == "double")


def _get_decimal_size(expression: RowExpression) -> tuple[int, int]:
    if isinstance(expression, LiteralValue) and expression.kind in WHOLE:
        return len(str(abs(expression.value))), 0
    return find_precision_and_scale(expression.kind) or (1, 0)


def _convert_to_type(expression: RowExpression, kind: Type) -> RowExpression:
    if expression.kind == kind:
        return expression
    if isinstance(expression, LiteralValue) and expression.value is None:
        return LiteralValue(None, kind)
    if isinstance(expression, LiteralValue) and kind in REAL:
        return LiteralValue(float(expression.value), kind)
    return Conversion(expression, kind)


def _spell_type(kind: Type) -> str:
    if isinstance(kind, str):
        return "null" if kind == VOID else kind
    return str(find_arrow_type(kind))
