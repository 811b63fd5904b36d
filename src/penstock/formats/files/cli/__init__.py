"""Commands about tables of files."""
