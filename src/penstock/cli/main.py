"""The program ``penstock``."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and end the process with its exit code."""
    try:
        from penstock.cli.root import penstock

        penstock.main()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
