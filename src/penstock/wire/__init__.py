"""How values travel: as JSON, as HTTP requests, and as errors. Servers and clients share these rules."""
