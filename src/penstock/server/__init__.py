"""The HTTP server: one lake, offered to programs elsewhere through several APIs.

- ``routes``: what an API is made of, and what a handler is given; every API is a table of these.
- ``native``, ``nessie``: the APIs.
- ``access``: who asks, and whether they may.
- ``app``: the way of a request from the connection to a handler and back; ``matching``, ``handling``,
  ``streaming`` and ``threads`` are parts of it, ``limits`` and ``logs`` what it heeds and leaves behind.
- ``health``, ``openapi``, ``page``, ``figures``: what the server says about itself.
- ``run``: a process that serves until it is told to stop; ``workers`` are several.
"""
