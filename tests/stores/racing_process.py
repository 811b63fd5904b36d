"""A process that races others for one row: `python racing_process.py DATABASE locking|unlocked COUNT`.

Waits for a line on its standard input, then counts the row up until it has won so many times, and prints
every value that it replaced.
"""

from __future__ import annotations

import sys

from penstock.stores.port import Row
from penstock.stores.sqlite import SqliteStore
from penstock.testing.faults import FaultyStore


def main() -> None:
    database, family, count = sys.argv[1:]
    store = FaultyStore(SqliteStore(database), locking=family == "locking")
    print("ready", flush=True)
    sys.stdin.readline()
    won: list[int] = []
    while len(won) < int(count):
        with store.turn("counter") as turn:
            value = int(turn.row.data) if turn.row is not None else 0
            if turn.advance({}, Row("counter", "branch", b"%d" % (value + 1))).swapped:
                won.append(value)
    print(*won, flush=True)
    store.close()


if __name__ == "__main__":
    main()
