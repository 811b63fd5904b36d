"""Procedures that keep tables in order: optimize, vacuum, restore, erase and sweep."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from penstock.errors import InvalidRequest
from penstock.lake.answers import SweptFiles, SweptTable
from penstock.lake.sql_catalog.formats import make_needs_python_error
from penstock.lake.sql_catalog.procedure import CallResult, Parameter, Procedure, ProcedureCall
from penstock.model.clock import to_microseconds


def _optimize_table(call: ProcedureCall) -> CallResult:
    if call.optimize is None:  # a server rewrites no rows for others
        raise make_needs_python_error("files of a table cannot be rewritten")
    optimized = call.optimize(
        call.get_text("table"),
        branch=call.branch,
        target_file_bytes=call.get_number("target_file_bytes"),
        where=call.get_optional_text("where"),
        zorder_by=call.get_texts("zorder_by"),
        message=call.get_optional_text("message"),
    )
    return CallResult(
        [
            [
                str(optimized.key),
                optimized.version,
                optimized.files_removed,
                optimized.files_added,
                optimized.bytes_removed,
                optimized.bytes_added,
                optimized.files_skipped,
            ]
        ]
    )


def _restore_table(call: ProcedureCall) -> CallResult:
    arguments = call.session.arguments
    targets = [name for name in ("version", "timestamp", "to_ref") if arguments.get(name) is not None]
    if len(targets) != 1:
        raise InvalidRequest(
            "'restore' needs exactly one of the arguments 'to_ref', 'version' and 'timestamp'"
        )
    result = call.lake.table(call.get_text("table"), call.branch).restore(
        version=call.get_number("version"),
        timestamp=call.get_optional_text("timestamp"),
        ref=call.get_optional_text("to_ref"),
        message=call.get_optional_text("message"),
        dry_run=call.is_set("dry_run"),
    )
    # A repeated restore is answered without its tables: what is told of them is told by dry runs.
    previewed = result.keys[0] if result.dry_run and result.keys else None
    change = None if previewed is None else previewed.change
    conflicts = "\n".join(str(conflict) for conflict in result.conflicts)
    is_changed = result.applied if previewed is None else previewed.action != "unchanged"
    counts = [None, None] if change is None else [change.rows_added, change.rows_removed]
    return CallResult([[call.branch, result.head, is_changed, *counts, conflicts or None]])


def _vacuum_table(call: ProcedureCall) -> CallResult:
    table = call.table
    if not table.outside_read_set.exists:
        raise call.lake.key_not_found(table.key, call.current_reference)
    swept = call.lake.sweep_tables(
        table.key, remove_data=True, dry_run=call.is_set("dry_run"), progress=call.progress
    )
    return CallResult([_describe_table(part) for part in swept])


def _erase_table(call: ProcedureCall) -> CallResult:
    erased = call.lake.erase(
        call.get_text("table"),
        older_than=call.get_optional_text("older_than"),
        all_references=call.is_set("all_references"),
        dropped=call.is_set("dropped"),
        dry_run=call.is_set("dry_run"),
        progress=call.progress,
    )
    return CallResult(
        [
            [
                str(erased.key),
                erased.finished,
                _to_microseconds(erased.until),
                erased.rewritten_files,
                erased.data_files,
                erased.data_bytes,
                erased.log_files,
                erased.objects,
                "\n".join(erased.left) or None,
            ]
        ]
    )


def _sweep_lake(call: ProcedureCall) -> CallResult:
    is_dry, remove_data = call.is_set("dry_run"), call.is_set("remove_data")
    objects = call.lake.sweep(dry_run=is_dry, progress=call.progress)
    tables = call.lake.sweep_tables(remove_data=remove_data, dry_run=is_dry, progress=call.progress)
    files = call.lake.sweep_files(remove_data=remove_data, dry_run=is_dry, progress=call.progress)
    counted = [OBJECTS, None, objects.removed, objects.removed_bytes, 0, objects.waiting, objects.kept]
    rows = [[*counted, not objects.dry_run, None]]
    rows += [[TABLE, *_describe_table(table)] for table in tables]
    rows.append([FILES, *_describe_files(files)])
    return CallResult(rows)


def _describe_table(table: SweptTable) -> list[Any]:
    return [
        str(table.key),
        table.data_files,
        table.data_bytes,
        table.scratch_files,
        table.waiting,
        table.kept,
        table.data_removed,
        table.problem or None,
    ]


def _describe_files(files: SweptFiles) -> list[Any]:
    return [
        None,
        files.data_files,
        files.data_bytes,
        0,
        files.waiting,
        files.kept,
        files.data_removed,
        files.problem or None,
    ]


def _to_microseconds(moment: datetime | None) -> int | None:
    return None if moment is None else to_microseconds(moment)


OBJECTS: Final = "objects of the lake"
TABLE: Final = "table"
FILES: Final = "tables of files"
_REMOVED: Final = (
    "key string, files bigint, bytes bigint, log_files bigint, waiting bigint, kept bigint, "
    "is_removed boolean, problem string"
)
_TABLE: Final = Parameter("table")
_BRANCH: Final = Parameter("branch", default="NULL")
_MESSAGE: Final = Parameter("message", default="NULL")
_DRY_RUN: Final = Parameter("dry_run", "boolean", "false")

MAINTENANCE: Final = {
    "optimize": Procedure(
        "Rewrite the files of a table: small files are combined, and deleted rows are left out.",
        (
            _TABLE,
            Parameter("where", default="NULL"),
            Parameter("zorder_by", "array<string>", "NULL"),
            Parameter("target_file_bytes", "bigint", "NULL"),
            _BRANCH,
            _MESSAGE,
        ),
        "key string, version bigint, files_removed bigint, files_added bigint, bytes_removed bigint, "
        "bytes_added bigint, files_skipped bigint",
        _optimize_table,
        is_outside=True,
        is_long=True,
    ),
    "restore": Procedure(
        "Restore a table to a revision, a version or a time, by a new commit.",
        (
            _TABLE,
            Parameter("to_ref", default="NULL"),
            _BRANCH,
            Parameter("version", "bigint", "NULL"),
            Parameter("timestamp", default="NULL"),
            _MESSAGE,
            _DRY_RUN,
        ),
        "branch string, hash string, is_changed boolean, rows_added bigint, rows_removed bigint, "
        "conflicts string",
        _restore_table,
        is_outside=True,
    ),
    "vacuum": Procedure(
        "Remove files of a table that no retained commit needs and that are older than the grace period.",
        (_TABLE, _DRY_RUN),
        _REMOVED,
        _vacuum_table,
        is_outside=True,
        is_long=True,
    ),
    "erase": Procedure(
        "Make deleted rows of a table unrecoverable, and end its history before now.",
        (
            _TABLE,
            Parameter("older_than", default="NULL"),
            Parameter("all_references", "boolean", "false"),
            Parameter("dropped", "boolean", "false"),
            _DRY_RUN,
        ),
        "key string, is_finished boolean, until timestamp, files_rewritten bigint, files bigint, "
        "bytes bigint, log_files bigint, objects bigint, remaining string",
        _erase_table,
        is_outside=True,
        is_long=True,
    ),
    "sweep": Procedure(
        "Remove objects of the lake and files of all tables that are no longer needed.",
        (Parameter("remove_data", "boolean", "false"), _DRY_RUN),
        f"part string, {_REMOVED}",
        _sweep_lake,
        is_outside=True,
        is_long=True,
    ),
}
"""By their names."""
