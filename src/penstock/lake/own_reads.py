"""What a statement reads of the table that it writes to, and must find unchanged when it lands."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import msgspec

from penstock.lake.query_pins import PinnedCommit
from penstock.lake.transactions.calls import GetTransaction
from penstock.lake.transactions.read_set import find_transaction_read
from penstock.model.keys import Key

if TYPE_CHECKING:
    from penstock.lake.lake import Lake
    from penstock.lake.sql_catalog.requests import CatalogRequest


class OwnRead(msgspec.Struct, frozen=True, kw_only=True):
    """A read of the table that is written to, on the branch that it is written on."""

    pin: PinnedCommit
    """The commit at which it is read."""
    where: str | None = None
    """What every row that is needed fulfils, as far as it is known."""


OwnReads: TypeAlias = tuple[OwnRead, ...]
WAY_OUT = "\n  The statement reads the table that it writes to. Run it again."


def own_reads(lake: Lake, request: CatalogRequest, key: Key, branch: str | None) -> OwnReads:
    """What a statement reads of the table that it writes to.

    A table at a version or time that the statement names is not among it: that is what it asks for, whatever
    came since. In a transaction, its target's table is the same one: a DataFrame may be older than the
    transaction.
    """
    default, written = lake.default_branch, branch or lake.default_branch
    reads = [
        (read.table.branch or default, OwnRead(pin=read.table.pin, where=read.where))
        for read in request.reads
        if read.table.pin is not None and not read.table.is_past and Key(*read.table.key) == key
    ]
    branches = {written}
    transaction = find_transaction_read(written, None)
    if transaction is not None and any(read_branch != written for read_branch, _ in reads):
        branches.add(lake.do(GetTransaction(id=transaction)).target)
    return tuple(dict.fromkeys(read for read_branch, read in reads if read_branch in branches))
