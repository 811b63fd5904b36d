"""The rows of given files of a Delta table, as Spark reads them."""
