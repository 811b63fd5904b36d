"""A job's files: written by Spark, told by name, made actions of a commit."""
