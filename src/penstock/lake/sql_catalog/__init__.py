"""A lake as a catalog of SQL: what an engine asks by names, and the procedures that it can call."""
