"""A Spark job: it writes files below a table, which a commit may make part of it."""
