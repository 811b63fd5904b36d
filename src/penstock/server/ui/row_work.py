"""What a page needs of rows, done by a process apart from the server: it asks for the lake as the visitor."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from penstock.errors import InvalidRequest, PenstockError
from penstock.formats.plugin import FileFacts
from penstock.formats.rows.reader import RowReader, TableRows
from penstock.formats.rows.row_values import list_rows
from penstock.lake.answers import TableFigures
from penstock.lake.figures import VERSIONS_MAX, SizeCounter, describe_managed_table, measure_table
from penstock.lake.lake import Lake
from penstock.lake.sql.duckdb_limits import bound_queries
from penstock.lake.table import Table
from penstock.lake.worker_calls import TaskCatalogue
from penstock.model.decoders import get_json_decoder
from penstock.processes.child_process import ChildTask, TaskResult
from penstock.server.ui.row_requests import (
    COLUMNS_MAX,
    FILES_MAX,
    VALUE_MAX_CHARS,
    RowRequest,
    ShownBounds,
    ShownColumn,
    ShownDiff,
    ShownExpectation,
    ShownFile,
    ShownFiles,
    ShownRows,
    ShownTable,
    ShownVersion,
)
from penstock.wire import json

NUMBERS: Final = ("int", "uint", "float", "double", "half", "decimal")
CHANGE: Final = "_change_type"


def run_row_request(task: ChildTask) -> TaskResult:
    """Answer one question."""
    request = get_json_decoder(RowRequest).decode(task.head)
    lake = Lake(TaskCatalogue(task, request.page_max), request.who)
    try:
        with bound_queries(task.memory_max_bytes):
            answer = _ANSWERS[request.kind](lake, request)
    except ModuleNotFoundError as missing:
        raise InvalidRequest(
            f"rows cannot be read: the server has no library {missing.name}; it comes with "
            "pip install 'penstock[delta,lance,sql]'"
        ) from None
    return TaskResult(body=answer if isinstance(answer, bytes) else msgspec.json.encode(answer))


def _find_table(lake: Lake, request: RowRequest, ref: str) -> Table:
    return lake.at(ref).outside_read_set.table(request.key)


def _read_rows(lake: Lake, request: RowRequest) -> ShownRows:
    rows = _find_table(lake, request, request.ref).scan()
    total = rows.num_rows if not request.where else None
    return _show_rows(rows, request, total, request.where or None)


def _run_query(lake: Lake, request: RowRequest) -> ShownRows:
    return _show_rows(lake.sql(request.sql[0], request.ref), request)


def _show_rows(
    rows: RowReader, request: RowRequest, total: int | None = None, where: str | None = None
) -> ShownRows:
    schema = rows.arrow_schema
    names = schema.names[:COLUMNS_MAX]
    if not names:
        return ShownRows(total=total)
    is_whole = len(names) == len(schema.names)
    reader = rows.to_batches(None if is_whole else names, where)
    return _show_batches(reader, request, len(schema.names), total)


def _show_batches(batches: Any, request: RowRequest, columns_total: int, total: int | None) -> ShownRows:
    """One page of a stream of rows. No more of it is read than that takes, in whole batches."""
    skipped, has_more = request.offset, False
    shown: list[tuple[str | None, ...]] = []
    for batch in batches:
        if skipped >= batch.num_rows:
            skipped -= batch.num_rows
            continue
        room = request.limit - len(shown)
        part = batch.slice(skipped, room)
        shown += [tuple(map(_show_value, row)) for row in list_rows(part)]
        has_more = batch.num_rows - skipped > part.num_rows or (room == 0)
        skipped = 0
        if has_more:
            break
    return ShownRows(
        columns=_show_columns(batches.schema),
        columns_total=columns_total,
        rows=tuple(shown),
        total=total,
        has_more=has_more,
    )


def _show_columns(schema: Any) -> tuple[ShownColumn, ...]:
    return tuple(
        ShownColumn(field.name, str(field.type), str(field.type).startswith(NUMBERS), field.nullable)
        for field in schema
    )


def _show_value(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bytes):
        value = f"0x{value[:VALUE_MAX_CHARS].hex()}"
    elif isinstance(value, list):
        value = f"[{', '.join(str(item) for item in value[:VALUE_MAX_CHARS])}]"
    text = str(value)
    return text if len(text) <= VALUE_MAX_CHARS else f"{text[: VALUE_MAX_CHARS - 1]}…"


def _diff_rows(lake: Lake, request: RowRequest) -> ShownDiff:
    diff = lake.diff_rows(request.key, request.base, request.ref, on=request.on or None)
    names = [name for name in diff.arrow_schema.names if name != CHANGE]
    shown = _show_batches(
        diff.to_batches([CHANGE, *names[: COLUMNS_MAX - 1]]), request, len(names), diff.num_rows
    )
    return ShownDiff(
        rows=shown,
        added=diff.num_added,
        removed=diff.num_removed,
        changed=diff.num_changed,
        added_columns=diff.added_columns,
        removed_columns=diff.removed_columns,
        columns=tuple(names),
    )


def _measure_table(lake: Lake, request: RowRequest) -> bytes:
    return json.encode(measure_table(_find_table(lake, request, request.ref)), TableFigures)


def _describe_table(lake: Lake, request: RowRequest) -> ShownTable:
    table = _find_table(lake, request, request.ref)
    facts = describe_managed_table(table)
    columns, count = _describe_rows(table)
    versions = facts.list_versions(VERSIONS_MAX)
    counter = SizeCounter()
    files, are_all = _show_files(facts.list_files(), request.offset, counter)
    figures = counter.make_figures(table.key, versions, facts.list_sizes(VERSIONS_MAX), are_all=are_all)
    sizes = {size.version: size.size_bytes for size in figures.growth}
    return ShownTable(
        columns=columns,
        rows=count,
        facts=tuple(facts.facts),
        properties=tuple(sorted(facts.properties.items())),
        versions=tuple(
            ShownVersion(
                version=version.version,
                time=version.time.isoformat() if version.time is not None else "",
                operation=version.operation,
                details=version.details,
                size_bytes=sizes.get(version.version),
            )
            for version in versions
        ),
        growth=figures.growth,
        files=ShownFiles(
            files=files,
            total=figures.files,
            total_bytes=figures.size_bytes,
            sizes=figures.sizes,
            are_all=are_all,
        ),
    )


def _describe_rows(table: Table) -> tuple[tuple[ShownColumn, ...], int | None]:
    """The columns, and how many rows there are; nothing of a table whose rows cannot be read here."""
    try:
        rows: TableRows = table.scan()
        return _show_columns(rows.schema), rows.num_rows
    except PenstockError:
        return (), None


def _show_files(
    files: Iterable[FileFacts], offset: int, counter: SizeCounter
) -> tuple[tuple[ShownFile, ...], bool]:
    """The files of a page, and whether all were counted."""
    shown: list[ShownFile] = []
    for number, file in enumerate(files):
        if not counter.count_file(file):
            return tuple(shown), False
        if offset <= number < offset + FILES_MAX:
            shown.append(_show_file(file))
    return tuple(shown), True


def _show_file(file: FileFacts, change: str = "") -> ShownFile:
    return ShownFile(
        path=file.path,
        size_bytes=file.size_bytes,
        rows=file.rows,
        partition=file.partition,
        bounds=tuple(
            ShownBounds(bounds.column, _cut_text(bounds.lowest), _cut_text(bounds.highest), bounds.nulls)
            for bounds in file.bounds[:COLUMNS_MAX]
        ),
        change=change,
    )


def _cut_text(text: str) -> str:
    return text if len(text) <= VALUE_MAX_CHARS else f"{text[: VALUE_MAX_CHARS - 1]}…"


def _diff_files(lake: Lake, request: RowRequest) -> ShownFiles:
    """The files that only one of two revisions has, or that both have with other deleted rows."""
    old, new = (_list_files(lake, request, ref) for ref in (request.base, request.ref))
    changes = [
        *(_show_file(file, "+") for path, file in new.items() if path not in old),
        *(_show_file(file, "-") for path, file in old.items() if path not in new),
        *(
            _show_file(file, "~")
            for path, file in new.items()
            if path in old and old[path].identity != file.identity
        ),
    ]
    shown = sorted(changes, key=lambda file: (file.path, file.change))
    return ShownFiles(
        files=tuple(shown[request.offset : request.offset + FILES_MAX]),
        total=len(shown),
        total_bytes=sum(file.size_bytes or 0 for file in shown),
    )


def _list_files(lake: Lake, request: RowRequest, ref: str) -> dict[str, FileFacts]:
    """The files of a table at a revision by path; none if it is not there."""
    table = _find_table(lake, request, ref)
    if not table.exists:
        return {}
    return {file.path: file for file in describe_managed_table(table).list_files()}


def _ask_expectations(lake: Lake, request: RowRequest) -> list[ShownExpectation]:
    """What each query finds at a revision."""
    return [_ask_expectation(lake, request, sql) for sql in request.sql]


def _ask_expectation(lake: Lake, request: RowRequest, sql: str) -> ShownExpectation:
    try:
        return ShownExpectation(rows=_show_rows(lake.sql(sql, request.ref), request))
    except PenstockError as problem:
        return ShownExpectation(problem=problem.message)


_ANSWERS: Final[dict[str, Any]] = {
    "rows": _read_rows,
    "diff": _diff_rows,
    "file_diff": _diff_files,
    "table": _describe_table,
    "figures": _measure_table,
    "sql": _run_query,
    "expectations": _ask_expectations,
}
