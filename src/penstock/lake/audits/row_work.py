"""Queries of expectations asked in a process apart from the one that decides about commits.

The process is told which contents the tables would have, and reads the rows itself: logs and files from their
storage, and objects of the lake, which may not be stored yet, from who asks.
"""

from __future__ import annotations

import pickle
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import msgspec

from penstock.formats.plugin import WorkerTable
from penstock.formats.rows.reader import TableRows
from penstock.kernel.checks import BranchProposal
from penstock.kernel.objects import Objects
from penstock.lake.audits.queries import AuditQuery
from penstock.lake.audits.query_run import FoundRows, run_audit_query
from penstock.lake.audits.rows import find_proposed_table, no_rows_error
from penstock.lake.plugins import find_plugin
from penstock.lake.sql.duckdb_limits import MEMORY_SHARE
from penstock.model.content import AnyContent
from penstock.model.decoders import get_json_decoder, get_msgpack_decoder
from penstock.model.encoding import ObjectId
from penstock.model.keys import Key
from penstock.processes.child_process import ChildTask, TaskResult
from penstock.processes.pool import ProcessPool
from penstock.storage.moved_roots import MovedRoot, MovedRoots
from penstock.storage.places import Places
from penstock.stores.port import Store

if TYPE_CHECKING:
    from penstock.lake.embedded import Embedded

FUNCTION: Final = "penstock.lake.audits.row_work:run_row_query"


class ProposedTable(NamedTuple):
    """A table as it would be."""

    key: Key
    content: AnyContent
    details: Any = None
    """What its format needs to know beside: see ``FormatPlugin.row_source``."""


class RowQuery(NamedTuple):
    """A query, and what it is asked of."""

    query: AuditQuery
    tables: tuple[ProposedTable, ...]
    warehouse: str
    moved: tuple[MovedRoot, ...]
    """Roots whose files lie elsewhere now."""
    timeout_s: float


def ask_in_process(
    pool: ProcessPool, lake: Embedded, proposal: BranchProposal, query: AuditQuery, timeout_s: float
) -> FoundRows | None:
    """What a query finds in tables as they would be; ``None`` if nothing, or if one has no columns yet.

    Raises as ``run_audit_query``, and as ``ProcessPool.run_function``.
    """
    tables: list[ProposedTable] = []
    held: list[Any] = []
    for key in query.tables:
        content, plugin = find_proposed_table(lake, proposal, key)
        source = plugin.row_source(proposal, key, content)
        held.append(source.keep_alive)  # until it is asked
        tables.append(ProposedTable(key, content, source.details))
    row_query = RowQuery(query, tuple(tables), lake.warehouse, lake.moved.all, timeout_s)

    def answer_question(question: bytes) -> bytes:
        ids = get_msgpack_decoder(list[bytes]).decode(question)
        return msgspec.msgpack.encode(
            proposal.objects.fetch_stored_bytes([ObjectId(object_id) for object_id in ids])
        )

    output = pool.run_function(FUNCTION, body=pickle.dumps(row_query), answer=answer_question)
    held.clear()
    sample = get_json_decoder(tuple[list[dict[str, str]], bool] | None).decode(output.body)
    return None if sample is None else FoundRows(tuple(sample[0]), sample[1])


# -- in the process ----------------------------------------------------------------------------------------


def run_row_query(task: ChildTask) -> TaskResult:
    """Ask a query, and give what it finds."""
    row_query: RowQuery = pickle.loads(task.body)
    objects = Objects(cast("Store", _RemoteObjects(task)))
    places = Places(MovedRoots(row_query.moved))
    try:
        rows = {
            table.key: _open_rows(table, objects, places, row_query.warehouse) for table in row_query.tables
        }
        found_rows = None
        if all(table_rows.has_columns for table_rows in rows.values()):
            found_rows = run_audit_query(
                row_query.query, rows, row_query.timeout_s, task.memory_max_bytes // MEMORY_SHARE
            )
    finally:
        places.close()
    return TaskResult(
        body=msgspec.json.encode(None if found_rows is None else (found_rows.rows, found_rows.are_all))
    )


class _RemoteObjects:
    """The objects of a lake that is elsewhere."""

    def __init__(self, task: ChildTask) -> None:
        self._task = task

    def fetch(self, ids: Collection[ObjectId]) -> dict[ObjectId, bytes]:
        answer = self._task.ask(msgspec.msgpack.encode(list(ids)))
        return get_msgpack_decoder(dict[ObjectId, bytes]).decode(answer)


def _open_rows(table: ProposedTable, objects: Objects, places: Places, warehouse: str) -> TableRows:
    key, content = table.key, table.content
    if (plugin := find_plugin(content)) is None:
        raise no_rows_error(key, content)
    worked_on = WorkerTable(key, content, table.details, objects, places, warehouse)
    return TableRows(key, plugin.rows_in_worker(worked_on))
