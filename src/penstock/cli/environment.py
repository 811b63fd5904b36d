"""The environment variables that the command line reads, and what each of them means."""

from __future__ import annotations

from typing import Final

LAKE: Final = "PENSTOCK_LAKE"
AUTHOR: Final = "PENSTOCK_AUTHOR"
DEBUG: Final = "PENSTOCK_DEBUG"
NO_COLOR: Final = "NO_COLOR"
COMPLETE: Final = "_PENSTOCK_COMPLETE"

MEANINGS: Final = {
    LAKE: "Where the lake is, for commands that are not told by `--lake`.",
    AUTHOR: "Who commits, for commands that are not told by `--author`. The user's name if neither is given.",
    DEBUG: "If set to anything, an error shows where in the program it came from.",
    NO_COLOR: "If set to anything, output has no colours, not even on a terminal.",
}
