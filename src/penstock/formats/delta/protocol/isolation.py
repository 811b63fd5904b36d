"""Isolation levels: how much of what others wrote meanwhile a transaction may overlook."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from penstock.errors import InvalidContent
from penstock.formats.delta.protocol.actions import Action, Add, Cdc, CommitInfo, Metadata, Remove

ISOLATION_PROPERTY: Final = "delta.isolationLevel"


class DeltaIsolation(StrEnum):
    """From strict to lenient; the names are those of the table property."""

    SERIALIZABLE = "Serializable"
    """As if all transactions had run one after the other, in the order of the versions."""
    WRITE_SERIALIZABLE = "WriteSerializable"
    """As if they had run one after the other, though not always in the order of the versions: a blind append
    that came meanwhile counts as having come later."""
    SNAPSHOT = "SnapshotIsolation"
    """Only what was read and is gone matters; what is new does not."""


def table_isolation(metadata: Metadata | None) -> DeltaIsolation:
    """The level that a table asks for; ``WriteSerializable`` if it does not say.

    ``InvalidContent`` if it asks for one that does not exist.
    """
    level_name = None if metadata is None else metadata.configuration.get(ISOLATION_PROPERTY)
    if level_name is None:
        return DeltaIsolation.WRITE_SERIALIZABLE
    for level in DeltaIsolation:
        if level.value.lower() == level_name.lower():
            return level
    level_names = ", ".join(level.value for level in DeltaIsolation)
    raise InvalidContent(
        f"'{ISOLATION_PROPERTY}' must be one of {level_names}, got '{level_name}'", asked=level_name
    )


def isolation_for(
    table: DeltaIsolation, actions: Iterable[Action], *, operation_changes_data: bool
) -> DeltaIsolation:
    """The level for a transaction with these actions on a table with this level.

    Work that changes no data (compaction, or nothing at all) needs no more than its snapshot: it gives the
    same rows in any order with an append. Under ``WriteSerializable`` the operation itself must be of such a
    kind as well: an update that happened to match no row still depends on there being none. Metadata,
    protocols, batches and domains keep the table's level.
    """
    only_files = True
    for action in actions:
        match action:
            case Add() | Remove() | Cdc():
                only_files = only_files and not action.data_change
            case CommitInfo():
                pass
            case _:
                only_files = False
    if not only_files or (table is DeltaIsolation.WRITE_SERIALIZABLE and operation_changes_data):
        return table
    return DeltaIsolation.SNAPSHOT
