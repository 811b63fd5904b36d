"""Refusals of rows: what ends a job while it runs, in Spark's plan, and what its caller is told of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.errors import InvalidRequest
from penstock.spark.failures import MARK, unwrap
from penstock.wire.errors import encode_error

if TYPE_CHECKING:
    from pyspark.sql import Column


def refusal(message: str) -> Column:
    """A value that nothing can become: whoever evaluates it ends the job, with ``InvalidRequest``."""
    from pyspark.sql import functions as f

    return f.raise_error(f.lit(MARK + encode_error(InvalidRequest(message), "").decode()))


@contextmanager
def refusals_told() -> Iterator[None]:
    """What ends a job is raised as what it is to Penstock, if it was a refusal, and as it is otherwise."""
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as problem:
        if (found := unwrap(problem)) is None:
            raise
        raise found from None
