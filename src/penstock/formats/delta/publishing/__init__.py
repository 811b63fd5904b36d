"""Publishing: from ratified versions to files in the table's log."""
