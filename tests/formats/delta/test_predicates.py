"""Conditions: what their text means, and what is said about one that means nothing."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from penstock.errors import InvalidRequest
from penstock.formats.rows.predicate_parser import parse_predicate
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
    list_columns,
)
from penstock.formats.rows.schema import Field, StructType, Type

ADDRESS = StructType((Field(name="City", type="string", nullable=True),))
TYPES: dict[str, Type] = {
    "id": "long",
    "small": "byte",
    "name": "string",
    "day": "date",
    "at": "timestamp",
    "local": "timestamp_ntz",
    "ratio": "double",
    "amount": "decimal(10,2)",
    "done": "boolean",
    "raw": "binary",
    "odd name": "long",
    "in": "long",
    "address": ADDRESS,
}
SCHEMA = StructType(tuple(Field(name=name, type=kind, nullable=True) for name, kind in TYPES.items()))


def column(*path: str) -> Column:
    fields: list[Field] = []
    inside: Type = SCHEMA
    for name in path:
        assert isinstance(inside, StructType)
        found = inside.field(name)
        assert found is not None
        fields.append(found)
        inside = found.type
    return Column(tuple(fields))


ID = column("id")
ONE, TWO, THREE = (ComparedValues(ID, "=", number) for number in (1, 2, 3))


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("id = 1", ONE),
        ("ID == 1", ONE),
        ("1 = id", ONE),
        ("1 < id", ComparedValues(ID, ">", 1)),
        ("id<>-5", ComparedValues(ID, "!=", -5)),
        ("small < 300", ComparedValues(column("small"), "<", 300)),
        ("name = 'it''s'", ComparedValues(column("name"), "=", "it's")),
        ("name = ''", ComparedValues(column("name"), "=", "")),
        ("day >= '2026-11-14'", ComparedValues(column("day"), ">=", date(2026, 11, 14))),
        ("day >= date '2026-11-14'", ComparedValues(column("day"), ">=", date(2026, 11, 14))),
        ("at = '2026-11-14'", ComparedValues(column("at"), "=", datetime(2026, 11, 14, tzinfo=UTC))),
        (
            "at = '2026-11-14 12:00:00.5+02:00'",
            ComparedValues(column("at"), "=", datetime(2026, 11, 14, 10, 0, 0, 500_000, tzinfo=UTC)),
        ),
        (
            "local < timestamp '2026-11-14T10:00:00'",
            ComparedValues(column("local"), "<", datetime(2026, 11, 14, 10)),  # noqa: DTZ001
        ),
        ("ratio > 1", ComparedValues(column("ratio"), ">", 1.0)),
        ("ratio > -.5e-3", ComparedValues(column("ratio"), ">", -0.0005)),
        ("amount = 10.55", ComparedValues(column("amount"), "=", Decimal("10.55"))),
        ("done = TRUE", ComparedValues(column("done"), "=", True)),
        ("`odd name` = 1", ComparedValues(column("odd name"), "=", 1)),
        ('"in" = 1', ComparedValues(column("in"), "=", 1)),
        ("address.city like 'B%'", Like(column("address", "City"), "B%")),
        ("address is null", IsNull(column("address"))),
        ("raw is not null", Not(IsNull(column("raw")))),
        ("id in (1,2)", OneOf(ID, (1, 2))),
        ("id not in (1)", Not(OneOf(ID, (1,)))),
        ("id between 1 and 3", And((ComparedValues(ID, ">=", 1), ComparedValues(ID, "<=", 3)))),
        ("name not like '_a'", Not(Like(column("name"), "_a"))),
        ("id = 1 or id = 2 and id = 3", Or((ONE, And((TWO, THREE))))),
        ("(id = 1 or id = 2) and id = 3", And((Or((ONE, TWO)), THREE))),
        ("not id = 1 and id = 2", And((Not(ONE), TWO))),
        ("not (id = 1 and id = 2)", Not(And((ONE, TWO)))),
        (
            "id between 1 and 3 and id = 2",
            And((And((ComparedValues(ID, ">=", 1), ComparedValues(ID, "<=", 3))), TWO)),
        ),
        (" \n id\t=\n1  ", ONE),
    ],
)
def test_a_text_means_its_condition(text: str, meant: Predicate) -> None:
    assert parse_predicate(text, SCHEMA) == meant


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "ends where the name of a column should be"),
        ("idd = 1", "the table has no column 'idd'; did you mean 'id'? There are id, small, name"),
        ("upper(name) = 'X'", "calls the function 'upper', and a condition here can only compare columns"),
        ("address.town = 'x'", "the column 'address' has no part 'town'; there are City"),
        ("id.x = 1", "the column 'id' has no field 'x'"),
        (
            "id = 'x'",
            "'x' cannot be compared with the column 'id', which is of the type long: not a whole number",
        ),
        ("id = 1.5", "not a whole number"),
        ("id = 99999999999999999999", "does not fit into 64 bits"),
        ("id = true", "only boolean columns are compared with true and false"),
        ("done = 1", "only boolean columns are compared with true and false"),
        ("name = 1", "value is written in single quotes"),
        ("day = 20261114", "value is written in single quotes"),
        ("day = '14.11.2026'", "not a date"),
        ("day = '2026-02-30'", "day"),
        ("day = ''", "the text is empty"),
        ("at = 'noon'", "not a timestamp"),
        ("local = '2026-11-14 10:00:00Z'", "the timestamp has a time zone, but the column has none"),
        ("amount = 'NaN'", "not a decimal number"),
        ("amount = 1e99", "not a decimal number of at most 38 digits"),
        ("id = null", "write 'is null' or 'is not null'"),
        ("id in (1, null)", "write 'is null' or 'is not null'"),
        ("id in ()", "a literal, such as"),
        ("id =", "ends where a literal"),
        ("id", "ends where a comparison should be"),
        ("id = 1 id = 2", "'id' at character 8, where 'and', 'or' or the end should be"),
        ("id not = 1", "'in', 'between' or 'like' after 'not'"),
        ("(id = 1", "ends where ')' should be"),
        ("id like 'a'", "'like' compares a string column"),
        ("raw = 'x'", "can only be 'is null' or 'is not null'"),
        ("address = 'x'", "a struct; a condition on it can only be 'is null' or 'is not null'"),
        ("id = 1; drop", "'; drop' at character 7"),
        ("id = 'unended", "at character 6"),
        ('name = "id"', "a literal, such as"),
        ("(" * 100 + "id = 1" + ")" * 100, "nested more than 64 deep"),
        ("not " * 2000 + "id = 1", "nested more than 64 deep"),
    ],
)
def test_what_is_no_condition_is_refused_in_words(text: str, told: str) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(told)):
        parse_predicate(text, SCHEMA)


def test_a_long_list_of_conditions_is_not_nested() -> None:
    text = " or ".join(f"id = {number}" for number in range(5000))
    found = parse_predicate(text, SCHEMA)
    assert isinstance(found, Or)
    assert len(found.parts) == 5000
    assert len([*list_columns(found)]) == 5000


@pytest.mark.parametrize(
    ("pattern", "prefix"),
    [("abc", "abc"), ("a%", "a"), ("a_c", "a"), ("%a", ""), (r"a\%b%", "a%b"), (r"a\_\\%", "a_\\"), ("", "")],
)
def test_a_pattern_tells_what_every_text_of_it_begins_with(pattern: str, prefix: str) -> None:
    assert Like(column("name"), pattern).prefix == prefix
