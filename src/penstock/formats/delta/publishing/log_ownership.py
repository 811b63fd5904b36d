"""Whose a log is. Before a process writes to a log for the first time, the log has to name the table.

What the lake remembers does not tell: a table's files may have been deleted since, and another table may have
come to the place, of this lake or of nobody. Its versions have the same names.
"""

from __future__ import annotations

from penstock.errors import PenstockError
from penstock.formats.delta.branch_log.branch_log import decode_branch_log
from penstock.formats.delta.branch_log.ownership import TableOwner, find_owner
from penstock.formats.delta.errors import (
    ForeignCommit,
    InvalidLog,
    InvalidTable,
    TableNotFound,
    VersionNotFound,
)
from penstock.formats.delta.log.log_files import PlaceFiles
from penstock.formats.delta.log.snapshot import load_snapshot
from penstock.model.nessie import DeltaTable
from penstock.storage.places import Place


def check_named(place: Place, content: DeltaTable) -> None:
    """Raise unless a log, of which something was published, names the table where its line goes on from.

    That is the newest version that the line takes from the log; where it was cleaned up, the newest of all.
    ``ForeignCommit`` if it is that of another table, ``InvalidLog`` if it is gone or cannot be read.
    """
    published = decode_branch_log(content).published
    try:
        try:
            owner = named_owner(place, published if published >= 0 else None)
        except VersionNotFound:
            owner = named_owner(place)
    except TableNotFound:
        raise _log_gone_error(content) from None
    except InvalidTable as problem:
        raise _another_table_error(content, str(problem)) from None
    if owner is None:
        raise _another_table_error(content, "the log names no owner")
    if owner.table != content.id:
        raise _another_table_error(content, f"the log names table {owner.table or '(none)'} of {owner}")


def named_owner(place: Place, version: int | None = None) -> TableOwner | None:
    """The owner that a version of a log names, or its newest. Raises as ``load_snapshot``, ``find_owner``."""
    snapshot = load_snapshot(PlaceFiles(place), version)
    return find_owner(snapshot.protocol, snapshot.metadata, place.url)


def _log_gone_error(content: DeltaTable) -> PenstockError:
    return InvalidLog(
        f"the log of the table at {content.location} is gone: versions were published to it, but it is "
        "empty now.\n  Restore it from a backup or from older versions of the objects, and publish again; "
        "nothing is written until then. If the table was deleted on purpose, drop it from the lake.",
        location=content.location,
        id=str(content.id),
    )


def _another_table_error(content: DeltaTable, why: str) -> PenstockError:
    return ForeignCommit(
        f"the log at {content.location} is not that of table {content.id}: {why}.\n  Another program "
        "replaced it. Restore the log of the table and publish again; nothing is written until then. If "
        "that was on purpose, drop the table from the lake.",
        location=content.location,
        id=str(content.id),
    )
