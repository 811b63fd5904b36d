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
    LAKE: "Where the lake is, for commands that are not told by `--lake`.",
    AUTHOR: "Who commits, for commands that are not told by `--author`. The user's name if neither is given.",
    TOKEN: "What a server knows the caller by, for lakes behind `http://` and `https://`; also in Python.",
    TOKEN_FILE: "A file with the token, where it is not in the environment itself; also in Python.",
    INSECURE: "If set to 1, the token is also sent to another machine without TLS; also in Python.",
    DEBUG: "If set to anything, an error shows where in the program it came from.",
    NO_COLOR: "If set to anything, output has no colours, not even on a terminal.",
}
