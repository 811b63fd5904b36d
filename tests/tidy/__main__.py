"""Print the counts, and fail if one is above its limit: ``python -m tests.tidy [--all]``."""

from __future__ import annotations

import sys
from pathlib import Path

import penstock
from tests.tidy.counts import COUNTS
from tests.tidy.source import Source


def main() -> int:
    source = Source(Path(penstock.__file__).parent)
    is_exceeded = False
    for count in COUNTS:
        cases = sorted(count.find(source))
        exceeds = len(cases) > count.limit
        is_exceeded |= exceeds
        print(f"{len(cases):6,}  of at most {count.limit:6,}  {count.what}{'   TOO MANY' if exceeds else ''}")
        if "--all" in sys.argv:
            print(*(f"          {case}" for case in cases), sep="\n")
        elif exceeds:
            print("        'python -m tests.tidy --all' lists them")
        if len(cases) < count.limit:
            print(f"        lower the limit to {len(cases)} in tests/tidy/counts.py")
    return int(is_exceeded)


if __name__ == "__main__":
    sys.exit(main())
