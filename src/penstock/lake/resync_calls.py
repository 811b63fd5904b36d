"""The call that takes over what tables have and the lake does not know, and its answer."""

from __future__ import annotations

from typing import Any, ClassVar, Final

import msgspec

from penstock.lake.call import Call, RetrySafety
from penstock.model.commits import CommitMeta
from penstock.model.keys import Key


class ResyncedTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table that was out of sync with its log or folder, and the result of its resync."""

    location_fields: ClassVar[tuple[str, ...]] = ("location",)

    key: Key
    location: str
    known: int
    """The newest version that the lake had; -1 for a table that it did not have."""
    version: int
    """The newest version that it has now, or would have."""
    own: tuple[int, ...] = ()
    """The first and the last version that only the lake had, if there were any."""
    repeated: bool = False
    """Whether the rows of these versions were added again on top."""
    commit: str = ""
    """The commit of the lake at which they can be read."""
    doubtful: tuple[str, ...] = ()
    """Files of commits after the log's newest version: whether they were ratified cannot be known."""
    problem: str = ""
    """Why it was not resynced."""


def describe_ahead(table: ResyncedTable) -> str:
    """What a dry run found of a table, for people."""
    what = (
        f"{table.location} has version {table.version}, but the newest version in the lake is {table.known}"
    )
    if table.own:
        first, last = table.own[0], table.own[-1]
        what = f"versions {first} to {last} in the lake differ from those at {table.location}"
    return (
        f"is out of sync: {what}; 'penstock resync {table.key}' imports those versions, with all their rows"
    )


class ResyncResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a resync."""

    tables: tuple[ResyncedTable, ...]
    """Those that were out of sync."""
    in_sync: int
    """How many others were looked at."""
    dry_run: bool = False


class Resync(Call[ResyncResult], frozen=True, kw_only=True):
    """Import versions that tables' own logs and folders have and the lake does not know, as after a restore
    of the lake's database from a backup.

    A table that is in sync is left alone. Without a key, all tables of the default branch are looked at, and
    those of the warehouse that name this lake as their owner and that it never had.
    """

    method = "POST"
    path = "/resync"
    answer = ResyncResult
    retry = RetrySafety.ONCE  # it answers what it took over
    makes_lake = False
    is_long = True
    goes_on = True

    key: Key | None = None
    """Only the table at this key."""
    leave_own: bool = False
    """Whether versions that only the lake has, and that cannot be repeated, may be left behind: they can be
    read at the commit before."""
    dry_run: bool = False
    """Change nothing; only report what would be done."""
    who: str = ""
    """Who asks. A server puts the name of the caller's token here, if there is one."""


def resync_meta(key: Key, call: Resync) -> CommitMeta:
    """What the commit says of itself that takes over the versions of a table."""
    authors = (call.who,) if call.who else ()
    return CommitMeta(
        message=f"resync {key} with the versions that it has", authors=authors, committer=call.who
    )


CALLS: Final[tuple[type[Call[Any]], ...]] = (Resync,)
