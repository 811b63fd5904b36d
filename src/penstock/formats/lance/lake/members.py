"""What a lake and its tables offer for Lance: each says first if Lance is not installed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.formats.lance.lake.lance_requirement import require_lance

if TYPE_CHECKING:
    from penstock.formats.lance.lake.namespace import PenstockNamespace
    from penstock.formats.lance.lake.namespace_export import ExportResult
    from penstock.formats.lance.lake.namespace_import import ImportResult
    from penstock.lake.lake import Lake
    from penstock.lake.table import Table
    from penstock.model.keys import Key


def open_namespace(lake: Lake, ref: str | None, via: str | None) -> PenstockNamespace:
    """See ``Lake.lance``."""
    require_lance()
    from penstock.formats.lance.lake.namespace import PenstockNamespace

    return PenstockNamespace(lake, ref, via=via)


def open_dataset(table: Table, **options: Any) -> Any:
    """See ``Table.to_lance``."""
    require_lance()
    from penstock.formats.lance.lake.rows import open_lance_dataset

    table.note_read()
    return open_lance_dataset(table, **options)


def import_tables(
    lake: Lake, root: str | Path, namespace: str | Key | None, *, dry_run: bool, **said: Any
) -> ImportResult:
    """See ``Lake.import_lance``."""
    require_lance()
    from penstock.formats.lance.lake.namespace_import import import_lance

    return import_lance(lake, str(root), namespace, dry_run=dry_run, **said)


def export_tables(lake: Lake, root: str | Path, ref: str | None, *, dry_run: bool) -> ExportResult:
    """See ``Lake.export_lance``."""
    require_lance()
    from penstock.formats.lance.lake.namespace_export import export_lance

    return export_lance(lake, str(root), ref, dry_run=dry_run)
