"""How fast a store is under Penstock's own load, and how fast the same load would be without a queue."""
