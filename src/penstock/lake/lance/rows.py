"""Rows of Lance tables for programs: read and written by Lance itself, through the lake's namespace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock.errors import InvalidRequest
from penstock.lake.calls import GetOutcome, Said
from penstock.lake.delta_answers import Ratified, RatifiedTable
from penstock.lake.lance.answers import LanceCommitted
from penstock.lake.lance.calls import GetLanceTable, ListLanceVersions
from penstock.model.keys import Key

if TYPE_CHECKING:
    from penstock.lake.lake import Lake
    from penstock.lake.table import Table


def to_lance(table: Table, **options: Any) -> Any:
    """A table as Lance's own dataset, at the version that it has now."""
    table.lake.do(GetLanceTable(key=table.key, at=table.ref, via=table.via))  # or it is said what it is
    namespace = table.lake.lance(table.ref, via=table.via)
    import lance

    return lance.dataset(namespace_client=namespace, table_id=list(table.key), **options)


def to_arrow(table: Table, columns: Sequence[str] | None, where: str | None) -> Any:
    """The rows as a ``pyarrow.Table``. ``where`` is a condition as Lance reads it."""
    return to_lance(table).to_table(columns=None if columns is None else list(columns), filter=where)


def write(table: Table, data: Any, mode: str, said: Said, idempotency_key: str | None) -> Ratified:
    """Append rows, or put them in the place of all that there are, as one version and one commit."""
    import lance
    import pyarrow as pa  # type: ignore[import-untyped]

    if table.via is not None:
        raise InvalidRequest(f"{table!r} is at a commit, which stays as it is; write to a branch")
    if idempotency_key is not None and (done := _done_before(table, idempotency_key)) is not None:
        return done
    landed: list[LanceCommitted] = []
    namespace = table.lake.lance(table.ref).saying(said, idempotency_key, landed.append)
    rows = data if hasattr(data, "schema") else pa.table(data)
    made = lance.write_dataset(rows, namespace_client=namespace, table_id=list(table.key), mode=mode)
    committed = landed[-1]
    assert committed.commit is not None
    return _ratified(table.lake, table.key, committed.commit.id, made.version, table.ref)


def _done_before(table: Table, idempotency_key: str) -> Ratified | None:
    """What the same came to before: its files have new names each time."""
    landing = table.lake.do(GetOutcome(key=idempotency_key, branch=table.ref))
    if landing is None or not landing.commits:
        return None
    (found,) = table.lake.do(ListLanceVersions(key=table.key, at=landing.head, via=table.ref, limit=1))
    return _ratified(table.lake, table.key, landing.head, found.version, table.ref, is_repeated=True)


def _ratified(
    lake: Lake, key: Key, commit: str, version: int, branch: str, *, is_repeated: bool = False
) -> Ratified:
    (found,) = lake.do(ListLanceVersions(key=key, at=commit, via=branch, version=version))
    time_ms = 0 if found.created is None else round(found.created.timestamp() * 1000)
    name = found.manifest.rpartition("/")[2]
    one = RatifiedTable(key=key, version=version, name=name, timestamp_ms=time_ms, repeated=is_repeated)
    return Ratified(commit=lake.show(f"{branch}@{commit}"), tables=(one,))
