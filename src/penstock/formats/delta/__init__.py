"""Delta tables: their protocol, their log and rows in storage, and the lake as the owner of their commits."""
