"""Lance tables of a lake: as Lance's own clients see them, and in plain Python."""
