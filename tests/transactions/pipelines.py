"""Small pipelines over tables of three formats, for tests of transactions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyarrow as pa  # type: ignore[import-untyped]

import penstock
from penstock.lake.lake import Lake
from penstock.lake.remote import RemoteCatalogue
from penstock.lake.transactions.calls import GetTransaction
from penstock.lake.transactions.transaction import Transaction
from penstock.model.reads import Read
from tests.remote.conftest import QUICK
from tests.remote.serving import serving

FORMATS: Final = ("delta", "lance", "parquet")


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def ids(lake: Lake, key: str, ref: str | None = None) -> list[int]:
    """The rows of a table; in a transaction, this is a read."""
    found: list[int] = lake.table(key, ref).to_arrow()["id"].to_pylist()
    return sorted(found)


def reads(tx: Transaction, lake: Lake) -> list[Read]:
    """What is remembered of a transaction, wherever that was read."""
    return list(lake.do(GetTransaction(id=tx.id, reads=True)).reads)


@contextmanager
def opened(kind: str, place: Path) -> Iterator[Lake]:
    """A lake on disk, in this process or behind a server of it."""
    with penstock.open(place, create=True, author="ann") as own:
        if kind == "embedded":
            yield own
            return
        with (
            serving(own.catalogue) as server,
            Lake(RemoteCatalogue(server.url, patience=QUICK), author="ann") as remote,
        ):
            yield remote
