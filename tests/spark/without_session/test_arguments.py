"""Arguments that cannot be meant are refused before Spark is asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from penstock.errors import InvalidRequest
from penstock.lake.write_jobs import check_new_key
from penstock.model.keys import Key
from penstock.spark import write
from penstock.spark.arguments import check_session, check_values, check_version


def of_pandas() -> Any:
    import pandas as pd  # type: ignore[import-untyped]

    return pd.DataFrame({"id": [1]})


@pytest.mark.parametrize(
    ("make", "shown"),
    [
        (of_pandas, "DataFrame of pandas"),
        (lambda: pa.table({"id": [1]}), "Table of pyarrow"),
        (lambda: [{"id": 1}], "list"),
        (lambda: None, "None"),
    ],
    ids=["pandas", "arrow", "list", "none"],
)
def test_rows_that_are_no_dataframe_of_sparks_are_refused_with_the_ways_to_write_them(
    make: Callable[[], Any], shown: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        write(make(), "demo.rows")
    for part in (shown, "spark.createDataFrame(…)", "lake.table(key).append(…)"):
        assert part in refused.value.message


def test_what_is_said_of_a_long_argument_is_short() -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_session("x" * 10_000)
    assert len(refused.value.message) < 200


@pytest.mark.parametrize("version", ["0", 1.0, True], ids=["text", "real", "boolean"])
def test_a_version_is_a_whole_number(version: Any) -> None:
    with pytest.raises(InvalidRequest, match=f"'version' must be an integer.* got {version!r}"):
        check_version(version)


def test_no_version_is_as_good_as_one() -> None:
    check_version(None)
    check_version(0)


def test_new_values_are_given_by_column() -> None:
    check_values({"amount": 1})
    with pytest.raises(InvalidRequest, match=r"'set' .* of the type list"):
        check_values([("amount", 1)])


def test_other_keys_are_fine() -> None:
    for key in ("orders", 'sales."2026.11"', "sales.orders-2", "sales.größe", "a b.c:d"):
        check_new_key(Key.parse(key))
