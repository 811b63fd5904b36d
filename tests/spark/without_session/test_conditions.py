"""Conditions that Spark and Penstock understand alike."""

from __future__ import annotations

import pytest

from penstock.formats.rows.arrow_types import make_schema
from penstock.formats.rows.spark_conditions import has_same_meaning_in_spark
from tests.spark.reading_tables import VALUES


@pytest.mark.parametrize(
    ("where", "is_same"),
    [
        ("id = 3 and day >= '2026-01-02'", True),
        ("money > 1.5", True),
        ("at > '2026-01-01'", True),
        ("text = 'a'", True),
        ("short_real = 0.5", False),
        ("money = '1.5'", False),
        ("large = 1", False),
        ("text > date '2026-01-01'", False),
        ('text = "a"', False),
        ("text = 'a\\\\b'", False),
        ("text = 'it''s'", False),
        ("id % 2 = 0", False),
        ("id in (1, '02')", False),
        ("text in ('1') and id in (1, 2) and day in ('2026-01-02')", True),
        ("nothing = 1", False),
    ],
)
def test_files_are_left_out_only_where_a_condition_means_the_same_to_both(where: str, is_same: bool) -> None:
    schema = make_schema(VALUES)
    assert has_same_meaning_in_spark(where, schema, "UTC") is is_same
    if "at >" in where:
        assert not has_same_meaning_in_spark(where, schema, "Europe/Berlin")
