"""Transactions of a lake: what is written in one is for nobody else, until all of it lands at once."""
