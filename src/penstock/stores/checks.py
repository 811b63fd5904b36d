"""What several adapters refuse in the same words."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.errors import InvalidRequest, LakeNotFound, UnsupportedFormat
from penstock.model.encoding import ObjectId
from penstock.stores.port import Row


def check_version(url: str, version: int | None, known: int) -> None:
    """Refuse a database that is no lake, or one that a newer Penstock made."""
    if version is None:
        raise LakeNotFound(f"there is no lake at {url}; make one with: penstock init '{url}'")
    if version > known:
        raise UnsupportedFormat(
            f"{url} has schema version {version}; this Penstock reads versions up to {known}. Use a newer "
            "Penstock.",
            found=version,
            known=known,
        )


def check_sizes(objects: Mapping[ObjectId, bytes], row: Row | None, most_bytes: int, database: str) -> None:
    """Refuse what a database does not take as one piece, before anything is written."""
    for object_id, data in objects.items():
        if len(data) > most_bytes:
            raise InvalidRequest(
                f"object {object_id.hex()} cannot be stored: it has {len(data)} bytes, and "
                f"{database} takes at most {most_bytes} in one object"
            )
    if row is not None and len(row.data) > most_bytes:
        raise InvalidRequest(
            f"'{row.name}' cannot be stored: its row would have {len(row.data)} bytes, and "
            f"{database} takes at most {most_bytes} in one row"
        )
