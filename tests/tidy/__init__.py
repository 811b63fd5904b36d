"""How the code reads and hangs together, in counts that may fall and must not rise."""
