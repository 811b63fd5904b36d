"""Rows of a table as a stream of Arrow's that can be begun as often as somebody asks for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from penstock.errors import Damaged, KeyNotFound, NotManaged
from penstock.lake.audits.file_rows import FileRows
from penstock.lake.delta_plugin import DeltaPlugin
from penstock.lake.lance.installed import require_lance
from penstock.model.content import AnyContent, DeltaTable, FilesTable, LanceTable
from penstock.model.encoding import ObjectId
from penstock.model.keys import Key
from penstock.model.objects import Blob

if TYPE_CHECKING:
    from penstock.formats.delta.log.snapshot import Snapshot
    from penstock.kernel.checks import Proposal
    from penstock.lake.embedded import Embedded
    from penstock.lake.table import Table


class TableRows:
    """The rows of a table, in one state. Nothing is read before it is asked for, and never all at once."""

    def __init__(self, key: Key, begin: Callable[[], Any]) -> None:
        self.key, self._begin = key, begin

    def __repr__(self) -> str:
        return f"<TableRows of {self.key}>"

    @property
    def schema(self) -> Any:
        """Arrow's schema of them."""
        return self.to_batches().schema

    @property
    def has_columns(self) -> bool:
        """Whether there can be rows: not of a table that was only declared, or has no file yet."""
        return len(self.schema.names) > 0

    def to_batches(self) -> Any:
        """A ``pyarrow.RecordBatchReader``, from the first row on."""
        return self._begin()

    def to_arrow(self, columns: Sequence[str] | None = None) -> Any:
        """All of them as a ``pyarrow.Table``, with all columns or some."""
        found = self.to_batches().read_all()
        return found if columns is None else found.select(list(columns))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """For whoever takes Arrow's stream: DuckDB, Polars, pandas. Each time it begins anew."""
        return self.to_batches().__arrow_c_stream__(requested_schema)


def rows_proposed(lake: Embedded, proposal: Proposal, key: Key) -> TableRows:
    """The rows that a table would have. ``KeyNotFound`` if there would be none, ``NotManaged`` if the lake
    does not know what they are."""
    content = proposed_content(proposal, key)
    if isinstance(content, DeltaTable):
        return TableRows(key, lambda: _delta(lake, proposal, key, content))
    if isinstance(content, LanceTable):
        require_lance()
        from penstock.lake.audits.lance_rows import LanceRows

        return TableRows(key, LanceRows(lake, proposal, key, content).begin)
    if isinstance(content, FilesTable):
        from penstock.formats.files.files import state_of
        from penstock.lake.audits.proposed_files import ProposedFiles

        state = state_of(content)
        files = ProposedFiles(proposal.objects, lake.places, lake.warehouse, key, state.root)
        return TableRows(key, FileRows(key, files, state.layout).begin)
    raise no_rows(key, content)


def proposed_content(proposal: Proposal, key: Key) -> AnyContent:
    """What a table would be. Raises as ``rows_proposed``."""
    content = proposal.get(key)
    if content is None:
        raise KeyNotFound(f"there would be no '{key}' on '{proposal.branch}'", key=str(key))
    if not isinstance(content, DeltaTable | LanceTable | FilesTable) or not content.state:
        raise no_rows(key, content)
    return content


def rows_at(table: Table) -> TableRows:
    """The rows of a table where it is looked at, wherever the lake is. Raises as ``rows_proposed``."""
    content = table.content
    if isinstance(content, DeltaTable) and content.state:
        return TableRows(table.key, lambda: table.snapshot().to_batches())
    if isinstance(content, LanceTable) and content.state:
        return TableRows(table.key, lambda: table.to_lance().scanner().to_reader())
    if isinstance(content, FilesTable) and content.state:
        layout = table.files.about().layout
        return TableRows(table.key, FileRows(table.key, table.files, layout).begin)
    raise no_rows(table.key, content)


def _delta(lake: Embedded, proposal: Proposal, key: Key, content: DeltaTable) -> Any:
    from penstock.formats.delta.rows.scan import batches

    return batches(_snapshot(lake, proposal, key, content), lake.places.at(content.location))


def _snapshot(lake: Embedded, proposal: Proposal, key: Key, content: DeltaTable) -> Snapshot:
    """A version that may never be one. So it is not kept with those that are; what it goes on from is."""
    from penstock.formats.delta.lines.line import Tip, line_of
    from penstock.formats.delta.lines.snapshots import Snapshots

    def read(one: ObjectId) -> bytes:
        found = proposal.objects.get(one)
        if not isinstance(found, Blob):
            raise Damaged(f"object {one.hex()} holds no bytes", objects=[one.hex()])
        return found.data

    commits, base = lake.plugin(DeltaPlugin).parts.commits, lake.content_at(proposal.base, key)
    if not isinstance(base, DeltaTable) or not base.state or base.id != content.id:
        base = None
    if base is not None and Tip.of(line_of(base)).is_on(line_of(content), read):
        before = commits.snapshot(base, read)
        return before.followed_by([*commits.tail(content, before.version, read)])
    return Snapshots(lake.places, commits.tail).of(content, read)


def no_rows(key: Key, content: AnyContent) -> NotManaged:
    """What is said of a content whose rows cannot be read."""
    return NotManaged(
        f"'{key}' is a {content.type} whose rows the lake does not read: only those of Delta, Lance and file "
        "tables that it keeps",
        table=str(key),
    )
