"""Types that formats add to what a program holds, for annotations alone: nothing is loaded by this.

A lake and its tables have members that only one format answers, such as ``lake.delta`` and ``table.files``.
Each format declares its own in ``TableFormat.members``, by which they are found.
"""

# ruff: noqa: PLC0414 - these are here for others to import

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.formats.delta.lake.answers import TableVersions as TableVersions
    from penstock.formats.delta.lake.snapshot import PastVersion as PastVersion
    from penstock.formats.delta.lake.snapshot import TableSnapshot as TableSnapshot
    from penstock.formats.delta.lake.table import Actions as Actions
    from penstock.formats.delta.lake.tables import DeltaCreation as DeltaCreation
    from penstock.formats.delta.lake.tables import DeltaTables as DeltaTables
    from penstock.formats.delta.lake.view import DeltaView as DeltaView
    from penstock.formats.files.lake.answers import FilesWritten as FilesWritten
    from penstock.formats.files.lake.answers import JobInfo as JobInfo
    from penstock.formats.files.lake.file_system import FilesSystem as FilesSystem
    from penstock.formats.files.lake.proposed_files import ProposedFiles as ProposedFiles
    from penstock.formats.files.lake.table import Files as Files
    from penstock.formats.lance.lake.namespace import PenstockNamespace as PenstockNamespace
    from penstock.formats.lance.lake.namespace_export import ExportResult as ExportResult
    from penstock.formats.lance.lake.namespace_import import ImportResult as ImportResult
