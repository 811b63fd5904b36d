"""What a program does with a Lance table: Lance itself reads and writes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.errors import InvalidRequest, NotManaged, VersionNotFound
from penstock.formats.lance.lake.calls import GetLanceTable
from penstock.formats.lance.lake.installed import require_lance
from penstock.formats.lance.names import USAGE
from penstock.formats.lance.state import is_managed
from penstock.lake.answers import Ratified
from penstock.lake.table_writing import (
    RowWrite,
    check_format,
    find_content,
    has_nothing_to_write,
    no_rows_written,
)

if TYPE_CHECKING:
    from penstock.formats.lance.lake.answers import LanceAbout
    from penstock.lake.call import Said
    from penstock.lake.table import Table


class LanceView:
    """A Lance table whose versions the lake decides; ``NotManaged`` for any other."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def _about(self) -> LanceAbout:
        table = self._table
        return table.lake.do(GetLanceTable(key=table.key, at=table.ref, via=table.via))

    @property
    def location(self) -> str:
        return self._about().location

    @property
    def version(self) -> int:
        """``VersionNotFound`` if it has none yet."""
        found = self._about().version
        if found is None:
            raise VersionNotFound(f"'{self._table.key}' has no version yet", table=str(self._table.key))
        return found

    def to_arrow(self, columns: Sequence[str] | None, where: str | None) -> Any:
        require_lance()
        from penstock.formats.lance.lake.rows import to_arrow

        return to_arrow(self._table, columns, where)

    def append(self, data: Any, said: Said, idempotency_key: str | None) -> Ratified:
        return self._write(data, "append", said, idempotency_key)

    def overwrite(
        self,
        data: Any,
        partitions: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None,
        where: str | None,
        said: Said,
        idempotency_key: str | None,
    ) -> Ratified:
        if partitions is not None or where is not None:
            raise NotManaged(f"'{self._table.key}' is {USAGE}", key=str(self._table.key))
        return self._write(data, "overwrite", said, idempotency_key)

    def _write(self, data: Any, mode: str, said: Said, idempotency_key: str | None) -> Ratified:
        require_lance()
        from penstock.formats.lance.lake.rows import write

        return write(self._table, data, mode, said, idempotency_key)

    def write(self, rows: RowWrite) -> Ratified | None:
        table = self._table
        if rows.there is not None and not is_managed(rows.there):
            raise no_rows_written(table.key, rows.there)
        check_format(table.key, "lance", rows.format)
        if rows.partition_by:
            raise InvalidRequest("Lance tables have no partitions: leave out 'partition_by'")
        require_lance()
        from penstock.formats.lance.lake.creation import create, created_before

        if (known := created_before(table, rows.idempotency_key)) is not None:
            return known
        there = find_content(table)
        if there is None:
            return create(table, rows.data, rows.said, rows.idempotency_key)
        if has_nothing_to_write(table, there, rows.mode):
            return None
        return self._write(rows.data, rows.mode.value, rows.said, rows.idempotency_key)
