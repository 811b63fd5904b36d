"""The owner of tables: how they come, how they go, and what can be asked about them."""
