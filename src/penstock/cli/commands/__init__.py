"""The commands, one module a noun. Each asks the lake and hands the answer to a renderer; none decides."""
