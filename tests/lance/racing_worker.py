"""A process that writes to Lance tables through the namespace, while others do the same.

`python -m tests.lance.racing_worker '{"lake": …, "name": …}'`; see ``Task``.
"""

from __future__ import annotations

import sys
from typing import Any, Final

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]

import penstock
from penstock.errors import CommitConflict, RetriesExhausted
from penstock.lake.lake import Lake

KEYS: Final = 12
WAYS: Final = ("append", "merge", "transaction")
"""Append rows; merge rows by their key; do that in transactions. Each has a table of its own."""


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker is to do."""

    lake: str
    name: str
    rounds: int


def table_of(way: str) -> list[str]:
    return ["race", way]


def schema(*, is_annotated: bool) -> pa.Schema:
    """Of the table. Lance keeps keys apart by itself only where the column says that it is one."""
    said = {"lance-schema:unenforced-primary-key:position": "0"} if is_annotated else None
    return pa.schema([pa.field("k", pa.int64(), nullable=False, metadata=said), pa.field("v", pa.string())])


def rows(opened: Any, first: int, count: int, value: str) -> pa.Table:
    keys = pa.array(range(first, first + count), pa.int64())
    return pa.table({"k": keys, "v": pa.array([value] * count)}, schema=opened.schema)


def write(namespace: Any, way: str, task: Task, number: int) -> None:
    """One write: rows that only this process has, or new keys that all processes have."""
    import lance

    table, value = table_of(way), f"{task.name}-{number}"
    opened = lance.dataset(namespace_client=namespace, table_id=table)
    if way == "append":
        data = rows(opened, 1000, 1, value)
        lance.write_dataset(data, namespace_client=namespace, table_id=table, mode="append")
    else:
        merge = opened.merge_insert("k").when_matched_update_all().when_not_matched_insert_all()
        merge.conflict_retries(50).execute(rows(opened, number * KEYS, KEYS, value))


def is_beaten(problem: OSError) -> bool:
    """Whether a statement of a transaction met a version that others have landed since it began.

    Lance lists a table's folder before it commits, and finds that version there, which the transaction does
    not have. Either it goes on from there, is refused, and says that nobody knows what became of it; or it
    sees that both changed the same rows, and gives up.
    """
    told = str(problem)
    return "is unknown: the commit may or may not have been applied" in told or "concurrent" in told


def write_until_it_lands(lake: Lake, task: Task, number: int) -> None:
    for _ in range(1000):
        try:
            with lake.transaction(policy="snapshot") as transaction:
                write(transaction.lance, "transaction", task, number)
        except (CommitConflict, RetriesExhausted):
            continue
        except OSError as problem:
            if not is_beaten(problem):
                raise
            continue
        return
    raise AssertionError(f"{task.name} never landed")


def main(task: Task) -> None:
    with penstock.open(task.lake, create=False) as lake:
        namespace = lake.lance()
        print("ready", flush=True)
        sys.stdin.readline()
        for number in range(task.rounds):
            write(namespace, "append", task, number)
            write(namespace, "merge", task, number)
            write_until_it_lands(lake, task, number)


if __name__ == "__main__":
    main(msgspec.json.decode(sys.argv[1], type=Task))
