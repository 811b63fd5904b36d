"""Lets Spark find ``format("penstock")``: it looks into modules whose names begin with ``pyspark_``."""

from __future__ import annotations

from penstock.spark.source.data_source import PenstockSource as DefaultSource

__all__ = ["DefaultSource"]
