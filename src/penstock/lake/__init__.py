"""What a program holds: lakes, branches, tags, tables."""
