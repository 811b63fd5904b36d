"""Where data files live."""
