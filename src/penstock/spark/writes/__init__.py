"""What a write comes to: a new table, rows in one that is there, columns that are added or do not fit."""
