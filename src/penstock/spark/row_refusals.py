"""Refusals of rows: what ends a job while it runs, in Spark's plan, and what its caller is told of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.errors import InvalidRequest
from penstock.spark.spark_errors import unwrap
from penstock.wire.errors import ERROR_MARK, encode_error

if TYPE_CHECKING:
    from pyspark.sql import Column


def make_refusal_column(message: str, shown: Column | None = None) -> Column:
    """A value that nothing can become: whoever evaluates it ends the job, with ``InvalidRequest``.

    The text of ``shown`` in that row takes the place of the first ``{}`` of the message.
    """
    from pyspark.sql import functions as f

    line = ERROR_MARK + encode_error(InvalidRequest(message), "").decode()
    if shown is None:
        return f.raise_error(f.lit(line))
    before, _, after = line.partition("{}")
    spelled = f.to_json(f.array(shown))  # as JSON has it, but in brackets and quotes
    inside = f.substring(spelled, f.lit(3), f.length(spelled) - 4)
    return f.raise_error(f.concat(f.lit(before), inside, f.lit(after)))


@contextmanager
def raise_refusals() -> Iterator[None]:
    """What ends a job is raised as what it is to Penstock, if it was a refusal, and as it is otherwise."""
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as problem:
        if (penstock_error := unwrap(problem)) is None:
            raise
        raise penstock_error from None
