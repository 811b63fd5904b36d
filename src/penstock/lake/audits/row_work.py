"""Queries of expectations asked in a process apart from the one that decides about commits.

The process is told which contents the tables would have, and reads the rows itself: logs and files from their
storage, and objects of the lake, which may not be stored yet, from who asks.
"""

from __future__ import annotations

import pickle
from collections.abc import Collection
from typing import Any, Final, NamedTuple, cast

import msgspec

from penstock.errors import Damaged
from penstock.kernel.checks import Proposal
from penstock.kernel.objects import Objects
from penstock.lake.audits.asking import Found, ask
from penstock.lake.audits.file_rows import FileRows
from penstock.lake.audits.queries import Query
from penstock.lake.audits.rows import TableRows, no_rows, proposed_content
from penstock.lake.embedded import Embedded
from penstock.lake.lance.installed import require_lance
from penstock.model.content import AnyContent, DeltaTable, FilesTable, LanceTable
from penstock.model.decoders import json_decoder, msgpack_decoder
from penstock.model.encoding import ObjectId
from penstock.model.keys import Key
from penstock.model.objects import Blob
from penstock.processes.child import Task, TaskResult
from penstock.processes.pool import ProcessPool
from penstock.storage.moved_roots import MovedRoot, MovedRoots
from penstock.storage.places import Places
from penstock.stores.port import Store

FUNCTION: Final = "penstock.lake.audits.row_work:run"
MEMORY_SHARE: Final = 2
"""Of the memory of a process, for DuckDB. What it needs beyond goes to a disk."""


class ProposedTable(NamedTuple):
    """A table as it would be."""

    key: Key
    content: AnyContent
    version: Any = None
    """Of a Lance table: a ``ProposedVersion``."""


class RowQuery(NamedTuple):
    """A query, and what it is asked of."""

    query: Query
    tables: tuple[ProposedTable, ...]
    warehouse: str
    moved: tuple[MovedRoot, ...]
    """Roots whose files lie elsewhere now."""
    timeout_s: float


def ask_in_process(
    pool: ProcessPool, lake: Embedded, proposal: Proposal, query: Query, timeout_s: float
) -> Found | None:
    """What a query finds in tables as they would be; ``None`` if nothing, or if one has no columns yet.

    Raises as ``ask``, and as ``ProcessPool.run``.
    """
    tables: list[ProposedTable] = []
    held: list[Any] = []
    for key in query.tables:
        content = proposed_content(proposal, key)
        version = None
        if isinstance(content, LanceTable):
            require_lance()
            from penstock.lake.audits.lance_rows import LanceRows

            held.append(rows := LanceRows(lake, proposal, key, content))  # until it is asked
            version = rows.version
        tables.append(ProposedTable(key, content, version))
    asked = RowQuery(query, tuple(tables), lake.warehouse, lake.moved.all, timeout_s)

    def answer(question: bytes) -> bytes:
        ids = msgpack_decoder(list[bytes]).decode(question)
        return msgspec.msgpack.encode(proposal.objects.stored_bytes([ObjectId(one) for one in ids]))

    output = pool.run(FUNCTION, body=pickle.dumps(asked), answer=answer)
    held.clear()
    found = json_decoder(tuple[list[dict[str, str]], bool] | None).decode(output.body)
    return None if found is None else Found(tuple(found[0]), found[1])


# -- in the process ----------------------------------------------------------------------------------------


def run(task: Task) -> TaskResult:
    """Ask a query, and give what it finds."""
    asked: RowQuery = pickle.loads(task.body)
    objects = Objects(cast("Store", _AskedStore(task)))
    places = Places(MovedRoots(asked.moved))
    try:
        rows = {one.key: _rows(one, objects, places, asked.warehouse) for one in asked.tables}
        found = None
        if all(one.has_columns for one in rows.values()):
            found = ask(asked.query, rows, asked.timeout_s, task.memory_max_bytes // MEMORY_SHARE)
    finally:
        places.close()
    return TaskResult(body=msgspec.json.encode(None if found is None else (found.rows, found.are_all)))


class _AskedStore:
    """The objects of a lake that is elsewhere."""

    def __init__(self, task: Task) -> None:
        self._task = task

    def fetch(self, ids: Collection[ObjectId]) -> dict[ObjectId, bytes]:
        answer = self._task.ask(msgspec.msgpack.encode(list(ids)))
        return msgpack_decoder(dict[ObjectId, bytes]).decode(answer)


def _rows(table: ProposedTable, objects: Objects, places: Places, warehouse: str) -> TableRows:
    key, content = table.key, table.content
    if isinstance(content, DeltaTable):
        return TableRows(key, lambda: _delta_rows(content, objects, places))
    if isinstance(content, LanceTable):
        from penstock.lake.audits.lance_rows import open_rows

        return TableRows(key, open_rows(key, table.version))
    if isinstance(content, FilesTable):
        from penstock.formats.files.files import state_of
        from penstock.lake.audits.proposed_files import ProposedFiles

        state = state_of(content)
        files = ProposedFiles(objects, places, warehouse, key, state.root)
        return TableRows(key, FileRows(key, files, state.layout).begin)
    raise no_rows(key, content)


def _delta_rows(content: DeltaTable, objects: Objects, places: Places) -> Any:
    from penstock.formats.delta.lines.commits import Commits
    from penstock.formats.delta.rows.scan import batches

    def read(one: ObjectId) -> bytes:
        found = objects.get(one)
        if not isinstance(found, Blob):
            raise Damaged(f"object {one.hex()} holds no bytes", objects=[one.hex()])
        return found.data

    return batches(Commits(places).snapshot(content, read), places.at(content.location))
