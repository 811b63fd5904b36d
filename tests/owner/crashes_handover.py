"""Tables that come into a lake and leave it, in processes that die of it; and who goes on then."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import pyarrow as pa  # type: ignore[import-untyped]
from deltalake import DeltaTable as ForeignTable
from deltalake import write_deltalake
from deltalake.exceptions import DeltaError

from penstock.errors import TableConflict
from penstock.lake.lake import Lake
from tests.formats.delta.logs import SCHEMA
from tests.owner.crashes import Died, Process

KEY: Final = "orders"


class Handing:
    """A table, in the file system or in a lake, with rows that must never be lost or doubled."""

    def __init__(self, home: Path) -> None:
        self.home, self.root = home, home / "warehouse" / "orders"
        self.process = Process(home)
        self.rows: list[int] = []

    @property
    def lake(self) -> Lake:
        return self.process.lake

    def foreign_append(self) -> bool:
        """Add a row without asking a lake; whether that could be done."""
        row = len(self.rows)
        self.root.parent.mkdir(exist_ok=True)
        try:
            write_deltalake(str(self.root), _rows(row), mode="append")
        except DeltaError:  # it knows of no owners
            return False
        self.rows.append(row)
        return True

    def append(self) -> None:
        row = len(self.rows)
        self.lake.table(KEY).append(_rows(row))
        self.rows.append(row)

    def dies(self, work: Callable[[Lake], object], steps: int) -> bool:
        """Do it in a process with so many steps; whether it died of it. Another one is there then."""
        self.process.die_after(steps)
        try:
            work(self.lake)
        except Died:
            self.process.end()
            self.process = Process(self.home)
            return True
        self.process.die_after(None)
        return False

    @property
    def is_owned(self) -> bool:
        return self.lake.table(KEY).exists

    @property
    def has_owner(self) -> bool:
        """What the table's own log says."""
        table = ForeignTable(str(self.root))
        owner = "delta.managedCommitOwnerName" in table.metadata().configuration
        assert owner == ("managedCommits" in (table.protocol().writer_features or ()))
        return owner

    def check(self) -> None:
        """All rows are there, for whoever asks and whoever does not; every version is there once."""
        if self.is_owned:
            self.lake.delta.publish(KEY)
            assert _ids(self.lake.table(KEY).to_arrow()) == self.rows
        assert _ids(ForeignTable(str(self.root)).to_pyarrow_table()) == self.rows
        versions = sorted(int(path.stem) for path in (self.root / "_delta_log").glob("*.json"))
        assert versions == list(range(len(versions)))
        assert not self.lake.fsck().damages

    def close(self) -> None:
        self.process.end()


def adopt(lake: Lake) -> None:
    lake.delta.adopt(str(Path(lake.warehouse) / "orders"), KEY, idempotency_key="adopt")


def create_at(lake: Lake) -> None:
    location = str(Path(lake.warehouse) / "orders")
    lake.delta.create(KEY, schema=SCHEMA, location=location, idempotency_key="create")


def release(lake: Lake) -> None:
    lake.delta.release(KEY, idempotency_key="release")


def repeat(hand: Handing, work: Callable[[Lake], object]) -> None:
    """Who died is started again, and asks again."""
    work(hand.lake)


def catch_up(hand: Handing, work: Callable[[Lake], object]) -> None:
    """A process that was asked for nothing finishes what was begun; then it is asked for."""
    hand.process.owner.catch_up()
    before = hand.is_owned
    work(hand.lake)
    assert work is not release or not hand.is_owned
    assert work is release or hand.is_owned or not before


def foreign_writer(hand: Handing, work: Callable[[Lake], object]) -> None:
    """Somebody who does not ask the lake commits first, if that is possible."""
    hand.foreign_append()
    with suppress(TableConflict):  # who promised to own the table and came too late is told
        work(hand.lake)


def _rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def _ids(found: pa.Table) -> list[int]:
    ids: list[int] = sorted(found.column("id").to_pylist())
    return ids
