"""What a statement reads of the table that it writes to, and must find unchanged when it lands."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import msgspec

from penstock.lake.query_pins import PinnedCommit
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
    came since.
    """
    written = branch or lake.default_branch
    reads = [
        OwnRead(pin=read.table.pin, where=read.where)
        for read in request.reads
        if read.table.pin is not None
        and not read.table.is_past
        and Key(*read.table.key) == key
        and (read.table.branch or lake.default_branch) == written
    ]
    return tuple(dict.fromkeys(reads))
