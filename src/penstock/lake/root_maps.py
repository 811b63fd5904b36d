"""Roots of a lake whose files the operator moved: a bucket that was renamed, a directory elsewhere.

The lake keeps the locations that it has stored, and its description maps them (see ``storage.moved_roots``).
Before that changes, all files are looked for at the new place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import msgspec

from penstock.errors import InvalidRequest
from penstock.kernel.description import (
    ROW_NAME,
    LakeDescription,
    change_description,
    read_description,
    with_moved_root,
    without_moved_root,
)
from penstock.kernel.kernel import Kernel
from penstock.kernel.ledger import find_holder, is_entangled
from penstock.kernel.objects import read_content
from penstock.kernel.settings import Settings
from penstock.lake.copy import Place, open_lake_at
from penstock.lake.missing_files import list_missing_files
from penstock.lake.opener import open_lake
from penstock.model.clock import Clock, now_us
from penstock.model.content import AnyContent
from penstock.model.encoding import NO_COMMIT, ObjectId, encode
from penstock.model.references import Kind
from penstock.storage.moved_roots import MovedRoot
from penstock.stores.port import Row, Store
from penstock.stores.read_only import ReadOnlyStore

MISSING_MAX: Final = 10


class MappedRoots(msgspec.Struct, frozen=True, kw_only=True):
    """The roots of a lake that have moved, and what a change of them found."""

    moved_roots: tuple[MovedRoot, ...]
    """Those whose files are not where they were at first."""
    missing: tuple[str, ...] = ()
    """Files of tables that are not at the new place, if that was allowed."""


def map_root(
    source: Place,
    old: str,
    new: str,
    *,
    allow_missing: bool = False,
    author: str | None = None,
    settings: Settings | None = None,
    clock: Clock = now_us,
) -> MappedRoots:
    """Map a root: the lake finds files of tables below ``new`` that were below ``old`` before they were
    moved.

    Stored data and commit ids do not change. ``old`` may be a root, a folder above roots such as a bucket, or
    one below; a root that was mapped before is named by its present location. Other processes keep using the
    locations that they read when they opened the lake: stop them before the files are moved.

    ``InvalidRequest`` if the places lie in one another, or in other roots; and, with their names, if files of
    tables are not there, unless ``allow_missing`` says that it does not matter.
    """
    change = partial(with_moved_root, old=old, new=new)
    return _rewrite_mapped_roots(source, change, allow_missing, author, settings, clock)


def unmap_root(
    source: Place,
    location: str,
    *,
    allow_missing: bool = False,
    author: str | None = None,
    settings: Settings | None = None,
    clock: Clock = now_us,
) -> MappedRoots:
    """Remove the mapping of a root: the lake finds the files at their original location again.

    ``location`` is its old place or its new one. Raises as ``map_root``.
    """
    change = partial(without_moved_root, location=location)
    return _rewrite_mapped_roots(source, change, allow_missing, author, settings, clock)


def _rewrite_mapped_roots(
    source: Place,
    change: Callable[[LakeDescription], LakeDescription],
    allow_missing: bool,
    author: str | None,
    settings: Settings | None,
    clock: Clock,
) -> MappedRoots:
    # What is left to be published is not published now: the files are elsewhere.
    with open_lake_at(source, author, settings, clock, catch_up=False) as lake:
        kernel = lake.kernel
        kernel.store.require_writable()
        changed = change(read_description(kernel.store))
        _require_unused(kernel, changed)
        missing = _find_missing(kernel, changed, settings, clock)
        if missing and not allow_missing:
            raise _files_gone_error(missing)
        description = change_description(kernel.store, kernel.settings, change)
        moved = tuple(root for root in description.moved_roots if root.new != root.old)
        return MappedRoots(moved_roots=moved, missing=tuple(missing))


def _find_missing(
    kernel: Kernel, description: LakeDescription, settings: Settings | None, clock: Clock
) -> list[str]:
    """Files that are gone once the lake says of itself what is wanted."""
    view = _RedescribedStore(kernel.store, description)
    with open_lake(view, create=False, settings=settings, clock=clock, catch_up=False) as lake:
        return [str(file) for file in list_missing_files(lake)]


def _require_unused(kernel: Kernel, description: LakeDescription) -> None:
    """``InvalidRequest`` if the lake itself has, or had, a table at a location that is to mean another."""
    places = [root.new for root in description.moved_roots if root.new != root.old]
    heads = {
        reference.name: reference.head
        for kind in (Kind.BRANCH, Kind.TAG)
        for reference in kernel.references.list_all_references(kind)
    }
    for name, head in heads.items():
        look = partial(_read_content_at, kernel, head)
        for place in places if head != NO_COMMIT else ():
            if find_holder(look, place) is not None or is_entangled(look, place):
                raise InvalidRequest(
                    f"files cannot have been moved to {place}: '{name}' has, or had, a table at that "
                    "location, or above or below it",
                    location=place,
                    reference=name,
                )


def _read_content_at(kernel: Kernel, commit: ObjectId, stored: bytes) -> AnyContent | None:
    return read_content(kernel.objects, kernel.read_state(commit).get(stored))


def _files_gone_error(missing: Sequence[str]) -> InvalidRequest:
    more = f"\n  and {len(missing) - MISSING_MAX} more" if len(missing) > MISSING_MAX else ""
    listing = "\n  ".join(missing[:MISSING_MAX]) + more
    return InvalidRequest(
        f"files of tables are missing at the new location; nothing was changed:\n  {listing}\n  Move or copy "
        "all files below the old location, with the same names, or use --missing-ok.",
        missing=[*missing],
    )


class _RedescribedStore(ReadOnlyStore):
    """A lake that says something else of itself. It takes no writes."""

    def __init__(self, store: Store, description: LakeDescription) -> None:
        super().__init__(store)
        self._row = Row(ROW_NAME, Kind.LAKE.value, encode(description))

    def reference(self, name: str) -> Row | None:
        return self._row if name == ROW_NAME else super().reference(name)
