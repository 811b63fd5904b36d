"""Where a table is, as Spark spells it."""

from __future__ import annotations

from penstock.storage.hadoop import ACCOUNT
from penstock.storage.hadoop import make_hadoop_address as spark_address

__all__ = ["ACCOUNT", "spark_address"]
