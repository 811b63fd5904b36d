"""Lakes and the session that these tests share with those of Spark."""

from __future__ import annotations

from tests.spark.conftest import lake, spark

__all__ = ["lake", "spark"]
