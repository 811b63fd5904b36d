"""Delta tables, written and read by Spark."""
