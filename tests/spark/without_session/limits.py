"""How much a stream reads at once, as PySpark says it, which is loaded only where a test asks."""

from __future__ import annotations

from typing import Any


def all_available() -> Any:
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    return ReadAllAvailable()


def max_files(most: int) -> Any:
    from pyspark.sql.streaming.datasource import ReadMaxFiles

    return ReadMaxFiles(most)
