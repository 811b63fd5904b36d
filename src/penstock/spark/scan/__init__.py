"""The rows of given files of a table, as Spark reads them."""
