"""The pool: where in storage the files of a lake's tables of files lie."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from secrets import token_hex
from typing import Final

from penstock.errors import InvalidRequest
from penstock.formats.files.files import is_made_for_another
from penstock.model.jobs import check_job_id
from penstock.model.keys import Key
from penstock.storage.places import POOL

PART_MAX_BYTES: Final = 200
"""Of a name between two slashes: file systems take 255."""
NAME_MAX_BYTES: Final = 600
"""Of a name below a writer's folder: object storage takes 1,024, with all that is before it."""
TAKEN: Final = frozenset({".unfinished", ".locks"})
"""Folders that a directory keeps its own records in."""


def find_pool(warehouse: str) -> str:
    """The pool's folder, a path or URL with a slash at its end; ``InvalidRequest`` without a warehouse."""
    if not warehouse:
        raise InvalidRequest(
            "the lake has no warehouse, so it cannot store files\n  Create a lake with one: penstock init … "
            "--warehouse s3://bucket/warehouse"
        )
    return f"{warehouse.rstrip('/')}/{POOL}"


def name_in_pool(warehouse: str, address: str) -> str:
    """A file's name below the pool, from its whole address."""
    pool = find_pool(warehouse)
    if not address.startswith(pool):
        raise InvalidRequest(f"{address or 'a folder'} is not a file in the lake's file storage, {pool}")
    return address.removeprefix(pool)


def require_fence(fence: str, branch: str, key: Key, subject: str = "fence") -> None:
    """``InvalidRequest`` if it is none, or was made for another table or branch: what is in its folder is for
    those who may read it there."""
    if is_made_for_another(check_job_id(fence, subject), branch, key):
        raise InvalidRequest(
            f"the {subject} {fence} does not belong to '{key}' on the branch '{branch}': it was begun for "
            "another table or branch",
            table=str(key),
        )


def make_names(paths: Iterable[str]) -> dict[str, str]:
    """Names below a new folder for files that are to be at some paths of a table.

    A file lies at its own path, for people and engines to see what it is. Where storage cannot have that,
    since it is too long, or since one path is a folder of another, it has a name by chance.
    """
    names = dict.fromkeys(paths)
    folders = {path[:end] for path in names for end, char in enumerate(path) if char == "/"}
    return {path: path if _can_be_name(path, folders) else token_hex(16) for path in names}


def _can_be_name(path: str, folders: Collection[str]) -> bool:
    parts = path.split("/")
    return (
        path not in folders
        and len(path.encode()) <= NAME_MAX_BYTES
        and all(len(part.encode()) <= PART_MAX_BYTES and part not in TAKEN for part in parts)
    )
