"""Expressions of SQL at random, over columns of most types, as Spark and Arrow statements know them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from random import Random
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]

SCHEMA: Final = pa.schema(
    [
        ("id", pa.int64()),
        ("i", pa.int32()),
        ("h", pa.int16()),
        ("l", pa.int64()),
        ("f", pa.float32()),
        ("d", pa.float64()),
        ("m", pa.decimal128(10, 2)),
        ("t", pa.string()),
        ("u", pa.string()),
        ("y", pa.date32()),
        ("z", pa.timestamp("us", "UTC")),
        ("b", pa.bool_()),
    ]
)
FAMILIES: Final = {"number": "ihlfdm", "text": "tu", "day": "y", "time": "z", "condition": "b"}
VALUES: Final[dict[str, list[Any]]] = {
    "i": [1, 2, -3, 7, 100, 2**31 - 1],
    "h": [1, -2, 3, 32_000],
    "l": [1, -4, 10, 2**40],
    "f": [0.5, -1.25, 3.0, 0.1],
    "d": [0.1, -2.5, 1e10, 7.0, float("nan"), -0.0, float("inf")],
    "m": [Decimal("1.25"), Decimal("-3.50"), Decimal("12345678.99"), Decimal("0.05")],
    "t": ["a", "Ab c", "", " x ", "straße", "12"],
    "u": ["a", "b%", "-7", "ΑΣ"],
    "y": [date(2024, 2, 29), date(1969, 12, 31), date(2026, 11, 17)],
    "z": [datetime(2024, 2, 29, 23, 59, 59, 999_999, UTC), datetime(1969, 12, 31, 1, tzinfo=UTC)],
    "b": [True, False],
}


def make_rows(random: Random, ids: range) -> list[dict[str, Any]]:
    """A row of each id. One value in five is null."""
    return [
        {"id": number, **{name: random.choice([*values, None]) for name, values in VALUES.items()}}
        for number in ids
    ]


class Expressions:
    """Makes expressions of a family of types, over the columns of one table or two."""

    def __init__(self, random: Random, prefixes: tuple[str, ...] = ("",)) -> None:
        self._random, self._prefixes = random, prefixes

    def make(self, family: str, depth: int = 3) -> str:
        if depth == 0 or self._random.random() < 0.2:
            return self._leaf(family)
        choose, inner = self._random.choice, depth - 1
        number, text, day, time = (
            partial(self.make, one, inner) for one in ("number", "text", "day", "time")
        )
        makers: dict[str, list[Callable[[], str]]] = {
            "number": [
                *[lambda: f"({number()} {choose('+-*/%')} {self._small(inner)})"] * 4,
                lambda: f"({number()} div {self._small(inner)})",
                lambda: f"- {self._leaf('number')}",
                lambda: f"{choose(['abs', 'floor', 'ceil'])}({number()})",
                lambda: f"length({text()})",
                lambda: f"{choose(['year', 'month', 'day', 'quarter', 'dayofyear'])}({day()})",
                lambda: f"{choose(['hour', 'minute'])}({time()})",
                lambda: f"cast({number()} as {self._number_type()})",
                lambda: f"cast({self._column('tu')} as {choose(['int', 'double', 'bigint'])})",
                lambda: self._choice("number", inner),
                lambda: f"{choose(['greatest', 'least'])}({self._leaf('number')}, {number()})",
            ],
            "text": [
                lambda: f"{choose(['upper', 'lower', 'trim', 'ltrim', 'rtrim'])}({text()})",
                lambda: f"substring({text()}, {choose([0, 1, 2, -2])}, {choose([0, 1, 3])})",
                lambda: f"left({text()}, 2)",
                lambda: f"({text()} || {text()})",
                lambda: f"concat({text()}, {self._column('ihl')})",
                lambda: f"replace({text()}, 'a', 'xy')",
                lambda: f"cast({self._column('ihlmyb')} as string)",
                lambda: f"date_format({time()}, 'yyyy-MM-dd HH:mm')",
                lambda: self._choice("text", inner),
            ],
            "day": [
                lambda: f"cast({time()} as date)",
                lambda: f"trunc({day()}, '{choose(['MM', 'year', 'week'])}')",
                lambda: f"to_date({time()})",
                lambda: self._choice("day", inner),
            ],
            "time": [
                lambda: f"date_trunc('{choose(['HOUR', 'DAY', 'MONTH'])}', {time()})",
                lambda: f"cast({day()} as timestamp)",
                lambda: self._choice("time", inner),
            ],
            "condition": [
                *[lambda: self._comparison(inner)] * 4,
                *[lambda: f"({self._condition(depth)} {choose(['and', 'or'])} {self._condition(depth)})"] * 2,
                lambda: f"not {self._condition(depth)}",
                lambda: f"{self.make(choose(list(FAMILIES)[:4]), inner)} is {choose(['', 'not '])}null",
                lambda: f"{text()} {choose(['', 'not '])}like '{choose(['a%', '%b_', ''])}'",
            ],
        }
        return choose(makers[family])()

    def _condition(self, depth: int) -> str:
        return f"({self.make('condition', depth - 1)})"

    def _comparison(self, depth: int) -> str:
        choose, family = self._random.choice, self._random.choice(list(FAMILIES)[:4])
        first, second = self.make(family, depth), self.make(family, depth)
        if choose(range(4)) == 0:
            return f"{first} {choose(['', 'not '])}in ({second}, {self._literal(family)}, null)"
        if choose(range(4)) == 0:
            return f"{first} {choose(['', 'not '])}between {second} and {self._literal(family)}"
        sign, other = choose(["=", "<", "<=", ">", ">=", "<>"]), choose([second, self._literal(family)])
        return f"{first} {sign} {other}"

    def _choice(self, family: str, depth: int) -> str:
        first, second = self.make(family, depth), self.make(family, depth)
        return self._random.choice(
            [
                f"case when {self.make('condition', depth)} then {first} else {second} end",
                f"case {first} when {second} then {second} end",
                f"coalesce({first}, {second})",
                f"if({self.make('condition', depth)}, {first}, null)",
                f"nullif({first}, {second})",
            ]
        )

    def _small(self, depth: int) -> str:
        """A number that is not often zero or large, so that few expressions fail."""
        return self._random.choice(
            [self._literal("number"), self._leaf("number"), self.make("number", depth)]
        )

    def _leaf(self, family: str) -> str:
        is_literal = self._random.random() < 0.3
        return self._literal(family) if is_literal else self._column(FAMILIES[family])

    def _column(self, names: str) -> str:
        return f"{self._random.choice(self._prefixes)}{self._random.choice(names)}"

    def _literal(self, family: str) -> str:
        literals = {
            "number": ["2", "-3", "1.5", "0.25", "2e0", "7L", "100"],
            "text": ["'a'", "''", "'Ab c'"],
            "day": ["date '2024-02-29'", "date '1999-12-31'"],
            "time": ["timestamp '2024-02-29 12:00:00'"],
            "condition": ["true", "false", "cast(null as boolean)"],
        }
        return self._random.choice(literals[family])

    def _number_type(self) -> str:
        return self._random.choice(["int", "bigint", "double", "float", "decimal(12,1)", "smallint"])
