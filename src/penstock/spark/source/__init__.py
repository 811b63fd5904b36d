"""``format("penstock")``: tables of a lake for plain DataFrame code, for Spark Connect, and for streams.

Spark runs all of it in processes of its own: planning and committing beside the driver, reading and writing
in the tasks. Planning and committing open the lake by its address. Tasks only touch files of the table.
"""
