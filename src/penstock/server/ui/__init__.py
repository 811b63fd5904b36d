"""The page of a lake in a browser: HTML that the server makes, as a client of calls."""
