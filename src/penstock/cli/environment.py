"""The environment variables that the command line reads, and what each of them means."""

from __future__ import annotations

from typing import Final

LAKE: Final = "PENSTOCK_LAKE"
AUTHOR: Final = "PENSTOCK_AUTHOR"
TOKEN: Final = "PENSTOCK_TOKEN"
TOKEN_FILE: Final = "PENSTOCK_TOKEN_FILE"
INSECURE: Final = "PENSTOCK_INSECURE"
DEBUG: Final = "PENSTOCK_DEBUG"
NO_COLOR: Final = "NO_COLOR"
COMPLETE: Final = "_PENSTOCK_COMPLETE"

MEANINGS: Final = {
    LAKE: "The location of the lake, for commands without `--lake`. `penstock.open_table` follows a table to "
    "this address, if the table names it.",
    AUTHOR: "The author of commits, for commands without `--author`. Else the user's name, or behind a "
    "server the token's.",
    TOKEN: "The token of the caller, for lakes behind `http://` and `https://`.",
    TOKEN_FILE: "A file with the token, where it is not in the environment itself.",
    INSECURE: "If set to 1, the token is also sent to another machine without TLS.",
    DEBUG: "If set to anything, an error shows where in the program it came from.",
    NO_COLOR: "If set to anything, output has no colours, not even on a terminal.",
}

FOR_PROGRAMS_TOO: Final = (LAKE, TOKEN, TOKEN_FILE, INSECURE)
"""What ``penstock.open`` reads as well; the others are for commands only."""
