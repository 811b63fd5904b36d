"""Exports the tables of a lake as a Lance directory namespace, for programs that go on without the lake.

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
from penstock.formats.lance.lake.answers import LanceTableInfo
from penstock.formats.lance.lake.calls import GetLanceTable, PromoteLance
from penstock.formats.lance.lake.folder_notes import read_owner_id
from penstock.formats.lance.names import LINES
from penstock.formats.lance.state import is_managed
from penstock.model.keys import Key
from penstock.storage.locations import is_under, normalise_location, parse_table_of_place

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


class ExportResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an export."""

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


def export_lance(lake: Lake, root: str, ref: str | None = None, *, dry_run: bool = False) -> ExportResult:
    """List all Lance tables of a branch in a directory namespace; see ``Lake.export_lance``."""
    place, branch = normalise_location(root), ref or lake.default_branch
    keys = [
        key
        for key, content in lake.at(branch).entries()
        if isinstance(content, LanceTable) and is_managed(content)
    ]
    tables, problems = list[ExportedTable](), list[str]()
    for key in keys:
        try:
            about = lake.do(GetLanceTable(key=key, at=branch, to_write=True))
            tables.append(_require_exportable(about, place))
        except PenstockError as problem:
            problems.append(f"{key}: {problem.message}")
    if problems:
        listed = "\n".join(f"  {problem}" for problem in problems)
        raise InvalidRequest(
            f"some tables cannot be listed at {place}, so nothing was written:\n{listed}", root=place
        )
    exported = ExportResult(root=place, ref=branch, tables=tuple(tables), dry_run=dry_run)
    if dry_run or not (tables or _has_list(lake, place)):
        return exported
    existing = [
        msgspec.structs.replace(table, version=lake.do(PromoteLance(key=table.key, branch=branch)).version)
        for table in tables
    ]
    unchanged, removed = _write_table_list(lake, place, existing)
    return msgspec.structs.replace(exported, tables=tuple(existing), unchanged=unchanged, removed=removed)


def _require_exportable(about: LanceTableInfo, location: str) -> ExportedTable:
    if about.is_private:
        raise InvalidRequest("cannot be exported: it is private, and its versions exist in the lake only")
    folder = normalise_location(about.folder)
    if folder == location or not is_under(folder, location):
        raise InvalidRequest(f"cannot be exported: it is at {folder}, which is outside {location}")
    if any(DELIMITER in part for part in about.key):
        raise InvalidRequest(
            f"cannot be exported: its name contains '{DELIMITER}', which separates the parts of a name there"
        )
    return ExportedTable(key=about.key, folder=folder, version=about.version)


def _has_list(lake: Lake, location: str) -> bool:
    return next(iter(lake.places.open_place(location).entries(LIST)), None) is not None


def _write_table_list(lake: Lake, location: str, tables: list[ExportedTable]) -> tuple[int, int]:
    """Make the list, or add to it; say how many tables it had already, and how many were removed."""
    from lance.namespace import DirectoryNamespace
    from lance_namespace import LanceNamespaceError

    try:
        directory: Any = DirectoryNamespace(root=location, **READ_WITH)  # type: ignore[no-untyped-call]
        for namespace in sorted({parent for table in tables for parent in table.key.parents}):
            _make_namespace(directory, namespace)
        unchanged = sum(not _register_table(directory, location, table) for table in tables)
        return unchanged, _remove_others(lake, directory, tables)
    except (LanceNamespaceError, OSError) as problem:
        raise InvalidRequest(f"{location} cannot be made a Lance directory namespace: {problem}") from None


def _remove_others(lake: Lake, directory: Any, tables: list[ExportedTable]) -> int:
    """Take tables of the lake from the list that it does not have by these names; say how many."""
    from lance_namespace import DeregisterTableRequest, DescribeTableRequest

    listed, removed = {tuple(table.key) for table in tables}, 0
    for name in _list_table_names(directory, ()):
        if name not in listed:
            table = directory.describe_table(DescribeTableRequest(id=[*name]))
            if _is_given(lake, normalise_location(table.location)):
                directory.deregister_table(DeregisterTableRequest(id=[*name]))
                removed += 1
    return removed


def _list_table_names(directory: Any, namespace: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """All tables that are listed in a namespace, however deep."""
    from lance_namespace import ListNamespacesRequest, ListTablesRequest

    for page in _read_pages(directory.list_tables, ListTablesRequest(id=[*namespace])):
        yield from ((*namespace, name) for name in page.tables)
    for page in _read_pages(directory.list_namespaces, ListNamespacesRequest(id=[*namespace])):
        for name in page.namespaces:
            yield from _list_table_names(directory, (*namespace, name))


def _read_pages(ask: Callable[[Any], Any], request: Any) -> list[Any]:
    """All of a list, before anything of it is changed."""
    pages = [ask(request)]
    while pages[-1].page_token:
        pages.append(ask(request.model_copy(update={"page_token": pages[-1].page_token})))
    return pages


def _is_given(lake: Lake, folder: str) -> bool:
    """Whether a folder is one that the lake gave to a table, which is the lake's still or is swept."""
    location = folder.partition(f"/{LINES}")[0]
    above, _, name = location.rpartition("/")
    if (
        not lake.warehouse
        or above != normalise_location(lake.warehouse)
        or parse_table_of_place(name) is None
    ):
        return False
    place = lake.places.open_place(location)
    owner = read_owner_id(place)
    return owner == lake.about.id or (owner is None and next(iter(place.entries()), None) is None)


def _make_namespace(directory: Any, namespace: Key) -> None:
    from lance_namespace import CreateNamespaceRequest, NamespaceAlreadyExistsError

    with suppress(NamespaceAlreadyExistsError):
        directory.create_namespace(CreateNamespaceRequest(id=[*namespace]))


def _register_table(directory: Any, location: str, table: ExportedTable) -> bool:
    """Add a table to the list; ``False`` if it is there. One that is elsewhere by now is listed anew."""
    from lance_namespace import (
        DeregisterTableRequest,
        DescribeTableRequest,
        RegisterTableRequest,
        TableNotFoundError,
    )

    name = [*table.key]
    try:
        existing = normalise_location(directory.describe_table(DescribeTableRequest(id=name)).location)
    except TableNotFoundError:
        existing = ""
    if existing == table.folder:
        return False
    if existing:
        directory.deregister_table(DeregisterTableRequest(id=name))
    below = table.folder.removeprefix(location).lstrip("/")
    directory.register_table(RegisterTableRequest(id=name, location=below))
    return True
