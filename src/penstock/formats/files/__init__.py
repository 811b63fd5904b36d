"""Tables of files: any format, one tree from path to file for each table, no directory to list."""
