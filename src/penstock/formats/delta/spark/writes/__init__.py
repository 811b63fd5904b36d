"""What a write to a Delta table comes to: a new table, or rows in one whose columns they fit."""
