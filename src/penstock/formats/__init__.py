"""Table formats: what a managed table's own log means, and what may be added to it."""
