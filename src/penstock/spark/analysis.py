"""Conditions and expressions as Spark analyses them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.errors import InvalidRequest

if TYPE_CHECKING:
    from pyspark.sql import Column

_TREE: Final = "columnnodeexpression("
"""How Spark begins to show what a function of Python's is given: by its own notes, not by the name."""
_OF_SEVERAL_ROWS: Final = (
    "WINDOW_FUNCTION_NOT_ALLOWED_IN_CLAUSE",
    "INVALID_WHERE_CONDITION",
    "MISSING_GROUP_BY",
    "UNSUPPORTED_EXPR_FOR_OPERATOR",
    "UNSUPPORTED_GENERATOR",
)
"""What Spark calls the error of using windows, aggregates and generators where there is one row."""


class AnalyzedCondition(NamedTuple):
    """Which rows are meant: those for which it is true."""

    column: Column
    text: str | None
    """As SQL, if it was given so."""
    told: str
    """For the table's history."""


def parse_condition(where: str | Column | None) -> AnalyzedCondition:
    """A condition that was given as SQL text or as a column; without one, it is true for every row."""
    from pyspark.sql import functions as f

    if where is None:
        return AnalyzedCondition(f.lit(True), None, "true")
    if isinstance(where, str):
        with explain_analysis():
            # To Spark the bare word has no type, and so is no condition.
            is_null = where.strip().lower() == "null"
            return AnalyzedCondition(f.expr("boolean(null)" if is_null else where), where, where)
    match = re.fullmatch(r"Column<'(.*)'>", repr(where), re.DOTALL)
    shown, tree, _ = (match[1] if match else repr(where)).partition(_TREE)
    return AnalyzedCondition(where, None, shown + ("…" if tree else ""))


@contextmanager
def explain_analysis(place: str = "") -> Iterator[None]:
    """What Spark cannot make sense of is told as ``InvalidRequest``, without the plan that it stood in.

    ``place`` says what it is about, and begins the message.
    """
    from pyspark.errors import AnalysisException, ArithmeticException

    try:
        yield
    except (AnalysisException, ArithmeticException) as problem:  # also what cannot be parsed
        if (problem.getCondition() or "").startswith(_OF_SEVERAL_ROWS):
            raise InvalidRequest(
                f"{place}conditions and new values are computed from one row each, so they cannot contain "
                "a window, aggregate or generator function; compute these values into a column first"
            ) from None
        reason = next((line.strip() for line in str(problem).splitlines() if line.strip()), "")
        raise InvalidRequest(f"{place}Spark does not accept it: {reason}") from None
