"""Lance tables of a lake, written and read by Spark."""
