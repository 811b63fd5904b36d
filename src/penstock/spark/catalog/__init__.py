"""Spark's SQL over a lake: the driver's side of the catalog, which Spark's JVM asks."""
