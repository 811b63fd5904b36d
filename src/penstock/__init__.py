"""Penstock: every change to a data lake becomes visible at one instant, on a branch, or not at all.

>>> import penstock
>>> lake = penstock.open("memory:")
>>> lake.branches()
[<Branch main>]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock import errors

if TYPE_CHECKING:
    from penstock.formats.delta.lake.table_opener import open_table, read_delta
    from penstock.formats.files.content import FilesTable
    from penstock.formats.lance.content import LanceTable
    from penstock.kernel.checks import Vetoed
    from penstock.kernel.settings import Settings
    from penstock.lake.backup import backup_lake as backup
    from penstock.lake.backup import (
        expire_backups,
        forget_backups,
        list_backups,
        registered_backups,
        restore_backup,
        verify_backup,
    )
    from penstock.lake.copy import cancel_move, undo_move
    from penstock.lake.copy import copy_lake as copy
    from penstock.lake.copy import move_lake as move
    from penstock.lake.lake import Lake
    from penstock.lake.opener import init_lake as init
    from penstock.lake.opener import open_lake as open  # noqa: A004 - `penstock.open` is the way in
    from penstock.lake.upgrade import upgrade_lake as upgrade
    from penstock.model.commits import Commit
    from penstock.model.content import Namespace, SqlView, Unknown
    from penstock.model.keys import Key
    from penstock.model.merges import KeyMerge, MergeMode
    from penstock.model.nessie import DeltaTable, IcebergTable, IcebergView, Udf
    from penstock.model.operations import Change, Delete, Put, Unchanged

_HOMES = {
    "Change": "penstock.model.operations",
    "Commit": "penstock.model.commits",
    "Delete": "penstock.model.operations",
    "DeltaTable": "penstock.model.nessie",
    "FilesTable": "penstock.formats.files.content",
    "IcebergTable": "penstock.model.nessie",
    "IcebergView": "penstock.model.nessie",
    "Key": "penstock.model.keys",
    "KeyMerge": "penstock.model.merges",
    "Lake": "penstock.lake.lake",
    "LanceTable": "penstock.formats.lance.content",
    "MergeMode": "penstock.model.merges",
    "Namespace": "penstock.model.content",
    "Put": "penstock.model.operations",
    "Settings": "penstock.kernel.settings",
    "SqlView": "penstock.model.content",
    "Udf": "penstock.model.nessie",
    "Unchanged": "penstock.model.operations",
    "Unknown": "penstock.model.content",
    "Vetoed": "penstock.kernel.checks",
    "backup": "penstock.lake.backup:backup_lake",
    "cancel_move": "penstock.lake.copy",
    "copy": "penstock.lake.copy:copy_lake",
    "expire_backups": "penstock.lake.backup",
    "forget_backups": "penstock.lake.backup",
    "init": "penstock.lake.opener:init_lake",
    "list_backups": "penstock.lake.backup",
    "map_root": "penstock.lake.root_maps",
    "move": "penstock.lake.copy:move_lake",
    "open": "penstock.lake.opener:open_lake",
    "open_table": "penstock.formats.delta.lake.table_opener",
    "read_delta": "penstock.formats.delta.lake.table_opener",
    "registered_backups": "penstock.lake.backup",
    "restore_backup": "penstock.lake.backup",
    "undo_move": "penstock.lake.copy",
    "unmap_root": "penstock.lake.root_maps",
    "upgrade": "penstock.lake.upgrade:upgrade_lake",
    "verify_backup": "penstock.lake.backup",
}

__all__ = [  # noqa: RUF022 - in the order in which a reader needs them
    "open",
    "open_table",
    "read_delta",
    "init",
    "copy",
    "move",
    "cancel_move",
    "undo_move",
    "backup",
    "list_backups",
    "registered_backups",
    "verify_backup",
    "expire_backups",
    "forget_backups",
    "restore_backup",
    "map_root",
    "unmap_root",
    "upgrade",
    "Lake",
    "Key",
    "Put",
    "Delete",
    "Unchanged",
    "Change",
    "Namespace",
    "IcebergTable",
    "IcebergView",
    "DeltaTable",
    "LanceTable",
    "FilesTable",
    "SqlView",
    "Udf",
    "Unknown",
    "Commit",
    "KeyMerge",
    "MergeMode",
    "Vetoed",
    "Settings",
    "errors",
]


def __getattr__(name: str) -> Any:
    """Load what is asked for when it is asked for, so that ``import penstock`` is fast."""
    if name not in _HOMES:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    from importlib import import_module

    home, _, other = _HOMES[name].partition(":")
    attribute = getattr(import_module(home), other or name)
    globals()[name] = attribute
    return attribute


def __dir__() -> list[str]:
    return sorted(__all__)
