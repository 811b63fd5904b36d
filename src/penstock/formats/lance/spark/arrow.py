"""Functions over a DataFrame's rows, run by tasks with nothing of Penstock on their machines."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.formats.lance.spark import tasks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


def map_in_arrow(rows: DataFrame, task: Callable[[Any], Any], schema: StructType | str) -> DataFrame:
    """Apply a function of ``tasks`` to Arrow batches of a DataFrame's rows."""
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(tasks)  # type: ignore[no-untyped-call]
    # Spark has a word on pandas' version, which nothing here uses.
    warnings.filterwarnings("ignore", "PySpark does not yet", FutureWarning, r"pyspark\.sql\.pandas\.")
    return rows.mapInArrow(task, schema)
