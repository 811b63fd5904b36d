"""Lines of a table in the lake: how they grow, and how two of them meet."""
