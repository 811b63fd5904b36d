"""Nessie's REST API on a Penstock lake: the same paths, JSON, status codes and messages, for its clients."""
