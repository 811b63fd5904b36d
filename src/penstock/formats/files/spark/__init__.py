"""Tables of files, written and read by Spark."""
