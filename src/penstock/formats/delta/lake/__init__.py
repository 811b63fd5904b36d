"""Delta tables in a lake: what a program holds of one, the calls, their handlers, and maintenance."""
