"""Conditions on partition columns: what they come to for a file, and what of a wider one they are."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import InvalidRequest
from penstock.formats.delta.branch_log.replacements import Replacement
from penstock.formats.delta.protocol.partition_conditions import (
    check_condition,
    evaluate_condition,
    partition_part,
)
from penstock.formats.delta.protocol.predicate_outcomes import Outcome
from penstock.formats.delta.protocol.predicate_sql import write_predicate
from penstock.formats.delta.protocol.transaction import PartitionFilter, PartitionRegion
from penstock.formats.rows.predicate_parser import parse_predicate
from penstock.formats.rows.predicates import And, Column, ComparedValues, Like, Not, Or, Predicate
from penstock.formats.rows.schema import Field, StructType, parse_schema, write_schema
from penstock.model.encoding import encode, make_decoder
from tests.formats.delta.legal_commits import schema_string

SCHEMA = schema_string(
    {
        "id": "long",
        "day": "date",
        "city": "string",
        "at": "timestamp",
        "local": "timestamp_ntz",
        "price": "decimal(10,2)",
        "ratio": "double",
        "n": "integer",
        "odd `name`": "string",
        "done": "boolean",
    }
)
COLUMNS = ("day", "city", "at", "local", "price", "ratio", "n", "odd `name`", "done")


@pytest.mark.parametrize(
    ("where", "values", "outcome"),
    [
        ("day >= '2026-11-01'", {"day": "2026-11-01"}, True),
        ("day >= '2026-11-01'", {"day": "2026-10-31"}, False),
        ("day >= '2026-11-01'", {"day": None}, None),
        ("day >= '2026-11-01'", {"day": ""}, None),
        ("not day >= '2026-11-01'", {"day": None}, None),
        ("day is null", {"day": ""}, True),
        ("day is not null and city = 'x'", {"day": None, "city": "x"}, False),
        ("day < '2026-11-01' or city = 'x'", {"day": None, "city": "x"}, True),
        ("day < '2026-11-01' or city = 'x'", {"day": None, "city": "y"}, None),
        ("city = 'it''s'", {"city": "it's"}, True),
        ("city in ('a', 'b')", {"city": "b"}, True),
        ("city not in ('a', 'b')", {"city": None}, None),
        ("city like 'a%z'", {"city": "abcz"}, True),
        ("city like 'a%z'", {"city": "abc"}, False),
        ("city like '%\\%'", {"city": "100%"}, True),
        ("city like '_'", {"city": "ü"}, True),
        ("at >= '2026-11-01 00:00:00'", {"at": "2026-11-01T00:00:00.000000Z"}, True),
        ("at < '2026-11-01'", {"at": "2026-10-31 23:59:59"}, True),
        ("at = '2026-11-01 02:00:00+02:00'", {"at": "2026-11-01 00:00:00"}, True),
        ("local = '2026-11-01'", {"local": "2026-11-01 00:00:00.000000"}, True),
        ("price = 1.5", {"price": "1.50"}, True),
        ("price > 1.499", {"price": "1.50"}, True),
        ("ratio > 1e300", {"ratio": "NaN"}, True),
        ("n between 1 and 3", {"n": "03"}, True),
        ("`odd ``name``` = 'x'", {"odd `name`": "x"}, True),
        ("DAY = '2026-11-01'", {"day": "2026-11-01"}, True),
    ],
)
def test_a_condition_comes_to_one_thing_for_known_values(
    where: str, values: dict[str, str | None], outcome: Outcome
) -> None:
    check_condition(where, SCHEMA, COLUMNS)
    assert evaluate_condition(where, SCHEMA, values) == {outcome}
    region = PartitionRegion(SCHEMA, (PartitionFilter(where=where),))
    assert region.may_hold_file(values) is (outcome is True)
    assert region.is_decided(values)


@pytest.mark.parametrize(
    ("where", "values"),
    [
        ("day >= '2026-11-01'", {"day": "yesterday"}),
        ("day >= '2026-11-01'", {"city": "x"}),
        ("gone = 1", {"day": "2026-11-01"}),
    ],
    ids=["a value that is none", "no value", "a column that is gone"],
)
def test_what_cannot_be_told_may_be_in_the_partitions_and_is_no_certain_part(
    where: str, values: dict[str, str | None]
) -> None:
    region = PartitionRegion(SCHEMA, (PartitionFilter(where=where),))
    assert region.may_hold_file(values)
    assert not region.is_decided(values)
    certain = PartitionRegion(SCHEMA, (PartitionFilter(where=where), PartitionFilter()))
    assert certain.is_decided(values)


def test_values_and_a_condition_must_both_fit() -> None:
    region = PartitionRegion(SCHEMA, (PartitionFilter({"city": ("x",)}, "day < '2026-11-01'"),))
    assert region.may_hold_file({"city": "x", "day": "2026-10-01"})
    assert not region.may_hold_file({"city": "y", "day": "2026-10-01"})
    assert not region.may_hold_file({"city": "x", "day": "2026-12-01"})
    assert region.is_decided({"city": "y", "day": "never"})


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ("id = 1", "'id', which is not a partition column"),
        ("day = '2026-11-01' or id = 1", "'id', which is not a partition column"),
        ("nothing = 1", "no column 'nothing'"),
        ("day = 5", "cannot be compared"),
        ("day =", "ends where a literal"),
    ],
)
def test_a_condition_on_anything_else_is_refused(where: str, told: str) -> None:
    with pytest.raises(InvalidRequest, match=told):
        check_condition(where, SCHEMA, COLUMNS)


def test_a_part_of_a_struct_is_no_partition_column_whatever_that_is_called() -> None:
    inside = StructType((Field(name="b", type="long", nullable=True),))
    both = (Field(name="a", type=inside, nullable=True), Field(name="a.b", type="long", nullable=True))
    odd = write_schema(StructType(both))
    check_condition("`a.b` = 1", odd, ["a.b"])
    assert evaluate_condition("`a.b` = 1", odd, {"a.b": "1"}) == {True}
    with pytest.raises(InvalidRequest, match="not a partition column"):
        check_condition("a.b = 1", odd, ["a.b"])


@pytest.mark.parametrize(
    ("where", "part"),
    [
        ("id = 1", None),
        ("id = 1 or day = '2026-11-01'", None),
        ("day = '2026-11-01'", "`day` = '2026-11-01'"),
        ("id = 1 and day = '2026-11-01'", "`day` = '2026-11-01'"),
        ("(id = 1 and (n = 2 and id = 3)) and city <> 'it''s'", "`n` = 2 and `city` != 'it''s'"),
        ("(n = 1 or n = 2) and id = 3", "`n` = 1 or `n` = 2"),
        ("(n = 1 or n = 2) and done = true and id = 3", "(`n` = 1 or `n` = 2) and `done` = true"),
        ("not (id = 1 and n = 2) and day is not null", "`day` is not null"),
    ],
)
def test_the_part_of_a_condition_on_partition_columns_is_made_of_what_must_be_true(
    where: str, part: str | None
) -> None:
    assert partition_part(where, SCHEMA, COLUMNS) == part


def _column(name: str) -> Column:
    field = parse_schema(SCHEMA).field(name)
    assert isinstance(field, Field)
    return Column((field,))


_TESTS: st.SearchStrategy[Predicate] = st.one_of(
    st.builds(
        ComparedValues,
        st.just(_column("city")),
        st.sampled_from(["=", "!=", "<", "<=", ">", ">="]),
        st.text(st.characters(exclude_categories=["Cs"])),
    ),
    st.builds(ComparedValues, st.just(_column("n")), st.just("<"), st.integers(-(2**63), 2**63 - 1)),
    st.builds(
        ComparedValues,
        st.just(_column("ratio")),
        st.just("="),
        st.floats(allow_nan=False),
    ),
    st.builds(ComparedValues, st.just(_column("day")), st.just(">="), st.dates(date(1000, 1, 1))),
    st.builds(ComparedValues, st.just(_column("local")), st.just("<"), st.datetimes()),
    st.builds(
        ComparedValues, st.just(_column("price")), st.just("<"), st.decimals(-(10**8), 10**8, places=4)
    ),
    st.builds(ComparedValues, st.just(_column("done")), st.just("="), st.booleans()),
    st.builds(Like, st.just(_column("odd `name`")), st.text("ab%_\\'")),
)
_CONDITIONS = st.recursive(
    _TESTS,
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.builds(And, st.lists(inner, min_size=2, max_size=3).map(tuple)),
        st.builds(Or, st.lists(inner, min_size=2, max_size=3).map(tuple)),
    ),
    max_leaves=8,
)


@settings(max_examples=150, derandomize=True, deadline=None)
@given(_CONDITIONS)
def test_a_condition_that_is_written_down_is_read_back_as_the_same(predicate: Predicate) -> None:
    assert parse_predicate(write_predicate(predicate), parse_schema(SCHEMA)) == predicate


@pytest.mark.parametrize(
    "text", ["ratio = 'NaN'", "ratio < 'Infinity'", "ratio > '-Infinity'", "at = '2026-11-01'"]
)
def test_so_are_values_that_are_spelled_in_words_or_with_a_zone(text: str) -> None:
    written = write_predicate(parse_predicate(text, parse_schema(SCHEMA)))
    assert write_predicate(parse_predicate(written, parse_schema(SCHEMA))) == written


def test_no_pattern_takes_long_to_be_compared() -> None:
    assert not Like(_column("city"), "%a" * 40 + "b%").matches("a" * 5000)


# --- stored data ------------------------------------------------------------------------------------------


def test_partitions_are_stored_as_before_where_they_have_no_condition() -> None:
    class_of = make_decoder(PartitionFilter).decode
    assert encode(PartitionFilter({"day": ("1", None)})) == encode({"values": {"day": ("1", None)}})
    assert class_of(encode({"values": {}})) == PartitionFilter()
    assert class_of(encode(PartitionFilter(where="n = 1"))) == PartitionFilter(where="n = 1")


# --- replacements -----------------------------------------------------------------------------------------


def replacing(*partitions: PartitionFilter) -> Replacement:
    return Replacement(b"1", partitions)


@pytest.mark.parametrize(
    ("one", "other", "meet"),
    [
        (PartitionFilter({"n": ("1",)}), PartitionFilter(where="n > 1"), False),
        (PartitionFilter({"n": ("1", "2")}), PartitionFilter(where="n > 1"), True),
        (PartitionFilter({"n": ("1",)}), PartitionFilter(where="city = 'x'"), True),
        (PartitionFilter({"n": ("1",)}, "city = 'x'"), PartitionFilter({"n": ("2",)}), False),
        (
            PartitionFilter({"n": ("1",), "city": ("x", "y")}),
            PartitionFilter(where="n = 2 or city = 'z'"),
            False,
        ),
        (PartitionFilter(where="n > 1"), PartitionFilter(where="n < 1"), True),  # in doubt they meet
        (PartitionFilter(), PartitionFilter(where="n < 1"), True),
    ],
)
def test_replacements_by_conditions_meet_unless_their_values_tell_otherwise(
    one: PartitionFilter, other: PartitionFilter, meet: bool
) -> None:
    assert replacing(one).overlaps(replacing(other), SCHEMA) is meet
    assert replacing(other).overlaps(replacing(one), SCHEMA) is meet


def test_a_replacement_by_a_condition_is_in_one_by_the_same_and_in_that_of_the_table() -> None:
    recent, all_of_it = replacing(PartitionFilter(where="n > 1")), replacing()
    assert recent.is_in(recent)
    assert recent.is_in(all_of_it)
    assert not all_of_it.is_in(recent)
    assert not recent.is_in(replacing(PartitionFilter({"n": ("1",)})))
    assert not replacing(PartitionFilter()).is_in(recent)
