"""Errors of Penstock, found again in what Spark makes of them."""

from __future__ import annotations

import traceback

import pytest

from penstock.errors import InvalidRequest, KeyNotFound, PenstockError, TableConflict
from penstock.model.conflicts import Conflict, ConflictKind
from penstock.model.keys import Key
from penstock.spark.spark_errors import LINE_MAX_BYTES, mark_errors, unwrap

KEY = "sales.orders"
CONFLICT = Conflict(ConflictKind.FORMAT, Key.parse(KEY), why="was replaced")


def told(error: PenstockError) -> str:
    """What is left of an error that leaves one of Spark's workers: text."""
    try:
        with mark_errors():
            raise error
    except PenstockError:
        return traceback.format_exc()


@pytest.mark.parametrize(
    "error",
    [
        KeyNotFound("there is no 'x'", key="x"),
        InvalidRequest('several\nlines, "quotes" and {braces}', column="a\nb"),
        TableConflict([CONFLICT], winners={"x": 3}),
    ],
    ids=lambda one: type(one).__name__,
)
def test_an_error_comes_back_from_text_as_it_was(error: PenstockError) -> None:
    found = unwrap(RuntimeError(f"Spark says: {told(error)} SQLSTATE: 38000"))
    assert type(found) is type(error)
    assert found is not None
    assert (found.message, found.details) == (error.message, error.details)


def test_an_error_of_penstock_itself_and_one_that_another_was_raised_for_are_found() -> None:
    error = KeyNotFound("there is no 'x'")
    outer = RuntimeError("outer")
    outer.__cause__ = error
    assert unwrap(error) is error
    assert unwrap(outer) is error
    assert unwrap(None) is None
    assert unwrap(RuntimeError("something else")) is None


def test_what_is_too_long_to_be_told_is_left_out_and_the_kind_of_the_error_stays() -> None:
    error = TableConflict([CONFLICT], "refused", winners=["x" * 100] * 1000, version=3)
    text = told(error)
    found = unwrap(RuntimeError(text))
    assert len(text) < 2 * LINE_MAX_BYTES
    assert isinstance(found, TableConflict)
    assert (found.message, found.details["version"], found.conflicts) == ("refused", 3, ())


def test_a_line_that_was_cut_is_no_error_of_penstock_and_does_no_harm() -> None:
    text = told(KeyNotFound("there is no 'x'"))
    assert unwrap(RuntimeError(text[: text.index('"message"')])) is None


def test_text_says_nothing_of_where_in_penstock_the_error_was_raised() -> None:
    def deep() -> None:
        raise InvalidRequest("no")

    try:
        with mark_errors():
            deep()
    except InvalidRequest:
        assert "deep" not in traceback.format_exc()
