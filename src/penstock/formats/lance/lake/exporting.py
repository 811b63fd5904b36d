"""Exporting: a directory namespace that has the tables of a lake, for who goes on without it.

Tables stay where they are, and a list of them (Lance's own ``__manifest``) is made in a folder above all of
them. Whoever opens that folder as a directory namespace finds the tables by the names that they have in the
lake, each with the versions of one branch. Lance keeps only places below the folder, so that no table may lie
elsewhere. A table that was dropped or renamed since an earlier export goes from the list if its folder is one
that the lake gave it: what is elsewhere may have been listed by others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.errors import InvalidRequest, PenstockError
from penstock.formats.lance.content import LanceTable
from penstock.formats.lance.lake.answers import LanceAbout
from penstock.formats.lance.lake.calls import GetLanceTable, PromoteLance
from penstock.formats.lance.lake.notes import owner_of
from penstock.formats.lance.names import LINES
from penstock.formats.lance.state import is_managed
from penstock.model.keys import Key
from penstock.storage.locations import is_under, normalise, table_of_place

if TYPE_CHECKING:
    from penstock.lake.lake import Lake

LIST: Final = "__manifest/"
DELIMITER: Final = "$"
"""Stands between the parts of a name in a directory namespace, and so inside none of them."""


READ_WITH: Final = {"dir_listing_enabled": "false"}
"""How the folder is to be opened: as it is listed. Otherwise Lance looks for tables of the outermost
namespace by the names of folders, and these have others."""


class ExportedTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table, and where a directory namespace finds it."""

    key: Key
    folder: str
    """A whole path or URL."""
    version: int | None = None
    """The newest one; nothing for a table that has none."""


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """What came of an export."""

    root: str
    """The directory namespace."""
    ref: str
    """The branch."""
    tables: tuple[ExportedTable, ...]
    """By key."""
    unchanged: int = 0
    """How many of them were there already."""
    removed: int = 0
    """How many others were taken from the list, which the branch has no more, or not by that name."""
    dry_run: bool = False
    """Whether nothing was done."""


def export_lance(lake: Lake, root: str, ref: str | None = None, *, dry_run: bool = False) -> Exported:
    """List all Lance tables of a branch in a directory namespace; see ``Lake.export_lance``."""
    place, branch = normalise(root), ref or lake.default_branch
    keys = [key for key, one in lake.at(branch).entries() if isinstance(one, LanceTable) and is_managed(one)]
    found, problems = list[ExportedTable](), list[str]()
    for key in keys:
        try:
            about = lake.do(GetLanceTable(key=key, at=branch, to_write=True))
            found.append(_checked(about, place))
        except PenstockError as problem:
            problems.append(f"{key}: {problem.message}")
    if problems:
        listed = "\n".join(f"  {one}" for one in problems)
        raise InvalidRequest(f"not all tables can be listed at {place}, so none is:\n{listed}", root=place)
    exported = Exported(root=place, ref=branch, tables=tuple(found), dry_run=dry_run)
    if dry_run or not (found or _has_list(lake, place)):
        return exported
    there = [
        msgspec.structs.replace(one, version=lake.do(PromoteLance(key=one.key, branch=branch)).version)
        for one in found
    ]
    unchanged, removed = _list(lake, place, there)
    return msgspec.structs.replace(exported, tables=tuple(there), unchanged=unchanged, removed=removed)


def _checked(about: LanceAbout, place: str) -> ExportedTable:
    if about.is_private:
        raise InvalidRequest("is private: its versions are nowhere but in the lake")
    folder = normalise(about.folder)
    if folder == place or not is_under(folder, place):
        raise InvalidRequest(f"is at {folder}, which does not lie below {place}")
    if any(DELIMITER in part for part in about.key):
        raise InvalidRequest(f"has a '{DELIMITER}' in its name, which stands between names there")
    return ExportedTable(key=about.key, folder=folder, version=about.version)


def _has_list(lake: Lake, place: str) -> bool:
    return next(iter(lake.places.at(place).entries(LIST)), None) is not None


def _list(lake: Lake, place: str, tables: list[ExportedTable]) -> tuple[int, int]:
    """Make the list, or add to it; say how many tables it had already, and how many were removed."""
    from lance.namespace import DirectoryNamespace
    from lance_namespace import LanceNamespaceError

    try:
        directory: Any = DirectoryNamespace(root=place, **READ_WITH)  # type: ignore[no-untyped-call]
        for namespace in sorted({parent for one in tables for parent in one.key.parents}):
            _make_namespace(directory, namespace)
        unchanged = sum(not _register(directory, place, one) for one in tables)
        return unchanged, _remove_others(lake, directory, tables)
    except (LanceNamespaceError, OSError) as problem:
        raise InvalidRequest(f"{place} cannot be made a Lance directory namespace: {problem}") from None


def _remove_others(lake: Lake, directory: Any, tables: list[ExportedTable]) -> int:
    """Take tables of the lake from the list that it does not have by these names; say how many."""
    from lance_namespace import DeregisterTableRequest, DescribeTableRequest

    listed, removed = {tuple(one.key) for one in tables}, 0
    for name in _names(directory, ()):
        if name not in listed:
            found = directory.describe_table(DescribeTableRequest(id=[*name]))
            if _is_given(lake, normalise(found.location)):
                directory.deregister_table(DeregisterTableRequest(id=[*name]))
                removed += 1
    return removed


def _names(directory: Any, namespace: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """All tables that are listed in a namespace, however deep."""
    from lance_namespace import ListNamespacesRequest, ListTablesRequest

    for page in _pages(directory.list_tables, ListTablesRequest(id=[*namespace])):
        yield from ((*namespace, name) for name in page.tables)
    for page in _pages(directory.list_namespaces, ListNamespacesRequest(id=[*namespace])):
        for name in page.namespaces:
            yield from _names(directory, (*namespace, name))


def _pages(ask: Callable[[Any], Any], request: Any) -> list[Any]:
    """All of a list, before anything of it is changed."""
    found = [ask(request)]
    while found[-1].page_token:
        found.append(ask(request.model_copy(update={"page_token": found[-1].page_token})))
    return found


def _is_given(lake: Lake, folder: str) -> bool:
    """Whether a folder is one that the lake gave to a table, which is the lake's still or is swept."""
    location = folder.partition(f"/{LINES}")[0]
    above, _, name = location.rpartition("/")
    if not lake.warehouse or above != normalise(lake.warehouse) or table_of_place(name) is None:
        return False
    place = lake.places.at(location)
    owner = owner_of(place)
    return owner == lake.about.id or (owner is None and next(iter(place.entries()), None) is None)


def _make_namespace(directory: Any, namespace: Key) -> None:
    from lance_namespace import CreateNamespaceRequest, NamespaceAlreadyExistsError

    with suppress(NamespaceAlreadyExistsError):
        directory.create_namespace(CreateNamespaceRequest(id=[*namespace]))


def _register(directory: Any, place: str, one: ExportedTable) -> bool:
    """Add a table to the list; ``False`` if it is there. One that is elsewhere by now is listed anew."""
    from lance_namespace import (
        DeregisterTableRequest,
        DescribeTableRequest,
        RegisterTableRequest,
        TableNotFoundError,
    )

    name = [*one.key]
    try:
        known = normalise(directory.describe_table(DescribeTableRequest(id=name)).location)
    except TableNotFoundError:
        known = ""
    if known == one.folder:
        return False
    if known:
        directory.deregister_table(DeregisterTableRequest(id=name))
    below = one.folder.removeprefix(place).lstrip("/")
    directory.register_table(RegisterTableRequest(id=name, location=below))
    return True
