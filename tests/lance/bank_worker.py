"""A process that moves money between two Lance tables, until it is done or killed.

`python -m tests.lance.bank_worker '{"lake": …, "journal": …}'`; see ``Task`` for what it can be told. Its
journal has a line when a transfer begins, and one when it has landed.
"""

from __future__ import annotations

import os
import random
import sys
import time
from typing import Any, Final

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]

import penstock
from penstock.errors import CommitConflict, RetriesExhausted
from penstock.lake.lake import Lake
from tests.lance.racing_worker import is_beaten

TABLES: Final = (["bank", "left"], ["bank", "right"])
SCHEMA: Final = pa.schema(
    [
        pa.field("account", pa.int64(), nullable=False),
        pa.field("balance", pa.int64(), nullable=False),
        pa.field("transfers", pa.list_(pa.string())),
    ]
)
"""``transfers`` names every transfer that came to the balance."""


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker is to do."""

    lake: str
    journal: str
    name: str
    count: int
    """How many transfers have to land."""
    accounts: int
    seed: int


def transfer(lake: Lake, name: str, accounts: tuple[int, int], amount: int) -> int:
    """Move money from the one table to the other, however often it takes; how often somebody was faster."""
    for tried in range(10_000):
        try:
            with lake.transaction(policy="snapshot", message=name) as transaction:
                for table, account, change in zip(TABLES, accounts, (-amount, amount), strict=True):
                    _change(transaction.lance, table, account, change, name)
        except (CommitConflict, RetriesExhausted):
            pass
        except OSError as problem:
            if not is_beaten(problem):
                raise
        else:
            return tried
        time.sleep(random.random() * 0.02 * min(tried + 1, 10))  # so that not all of them meet again
    raise AssertionError(f"{name} never landed")


def _change(namespace: Any, table: list[str], account: int, change: int, name: str) -> None:
    import lance

    opened = lance.dataset(namespace_client=namespace, table_id=table)
    (row,) = opened.to_table(filter=f"account = {account}").to_pylist()
    row = {**row, "balance": row["balance"] + change, "transfers": [*row["transfers"], name]}
    merge = opened.merge_insert("account").when_matched_update_all().conflict_retries(0)
    merge.execute(pa.Table.from_pylist([row], schema=SCHEMA))


def main(task: Task) -> None:
    chance = random.Random(task.seed)
    with penstock.open(task.lake, create=False) as lake:
        journal = os.open(task.journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        lake.lance()  # what takes a second to load
        print("ready", flush=True)
        sys.stdin.readline()
        for number in range(task.count):
            name = f"{task.name}-{number}"
            accounts = chance.randrange(task.accounts), chance.randrange(task.accounts)
            os.write(journal, f"begun {name}\n".encode())
            conflicts = transfer(lake, name, accounts, chance.randrange(1, 50))
            os.write(journal, f"landed {name} {conflicts}\n".encode())


if __name__ == "__main__":
    main(msgspec.json.decode(sys.argv[1], type=Task))
