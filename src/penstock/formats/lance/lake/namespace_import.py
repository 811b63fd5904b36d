"""Imports the tables of a Lance directory namespace into a lake, all of them in one commit.

A directory namespace is a folder that Lance itself keeps tables in. What it has is in a table of its own,
``__manifest``, with namespaces inside one another; where there is none, tables are the folders whose names
end in ``.lance``. Tables stay where they are, with all their versions: the lake registers them. From then on
it decides about new versions, so that nobody may go on writing past it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from penstock.errors import InvalidKey, InvalidRequest, LocationRefused
from penstock.formats.lance.lake.calls import CommitLance, RegisterLance
from penstock.formats.lance.names import VERSIONS
from penstock.lake.call import CommitDescription
from penstock.lake.calls import GetAbout, GetContents
from penstock.model.keys import Key
from penstock.storage.locations import check_under, normalise_location
from penstock.storage.places import Places

if TYPE_CHECKING:
    from penstock.lake.lake import Lake

MANIFEST: Final = "__manifest"
AT_ONCE: Final = 50
"""How many keys are looked up with one request."""


class ImportedTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table of a directory namespace, and what it is in the lake."""

    key: Key
    location: str
    is_declared: bool = False
    """Whether it has no version yet."""


class ListedTable(NamedTuple):
    """A table as the directory namespace has it."""

    parts: tuple[str, ...]
    location: str
    is_declared: bool = False


class ImportResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an import."""

    root: str
    """The directory namespace."""
    tables: tuple[ImportedTable, ...]
    """By key."""
    commit: str = ""
    """The commit that registered them; empty for a dry run."""
    dry_run: bool = False
    """Whether nothing was done."""


def import_lance(
    lake: Lake,
    root: str,
    namespace: str | Key | None = None,
    *,
    dry_run: bool = False,
    message: str | None = None,
    author: str | None = None,
    idempotency_key: str | None = None,
) -> ImportResult:
    """Register all tables of a directory namespace; see ``Lake.import_lance``."""
    place = normalise_location(root)
    above = () if namespace is None else Key.parse(namespace).elements
    tables, problems = list[ImportedTable](), list[str]()
    for parts, location, is_declared in _list_tables(place):
        try:
            tables.append(ImportedTable(key=Key(*above, *parts), location=location, is_declared=is_declared))
        except InvalidKey as problem:
            problems.append(f"{'.'.join(parts)}: {problem.message}")
    if not tables and not problems:
        raise InvalidRequest(
            f"there is no Lance table at {place}\n"
            "  A folder that holds tables has a list of them (__manifest), or folders named NAME.lance.",
            root=place,
        )
    tables.sort(key=lambda table: table.key)
    if not dry_run:
        lake.begin_write()
    problems += _find_problems(lake, tables)
    if problems:
        listed = "\n".join(f"  {problem}" for problem in problems)
        raise InvalidRequest(
            f"{len(problems)} of the tables at {place} cannot be imported, so nothing was imported:\n"
            f"{listed}",
            root=place,
        )
    imported = ImportResult(root=place, tables=tuple(tables), dry_run=dry_run)
    if dry_run:
        return imported
    committed = lake.do(
        CommitLance(
            operations=tuple(RegisterLance(key=table.key, location=table.location) for table in tables),
            said=CommitDescription(message=message or f"import {len(tables)} Lance tables from {place}"),
            who=lake.author if author is None else author,
            idempotency_key=idempotency_key,
        )
    )
    return msgspec.structs.replace(imported, commit="" if committed.commit is None else committed.commit.id)


# -- what is there -----------------------------------------------------------------------------------------


def _list_tables(location: str) -> Iterator[ListedTable]:
    """The tables of a directory namespace."""
    from lance.namespace import DirectoryNamespace
    from lance_namespace import LanceNamespaceError

    # A folder that has no list of its tables gets none: nothing is written there. Where there is one, it is
    # right about what it has; other tables of the outermost namespace are found by the names of folders.
    by_list, by_folder = {"dir_listing_enabled": "false"}, {"manifest_enabled": "false"}
    names, locations = set[tuple[str, ...]](), set[str]()
    try:
        for way in [by_list, by_folder] if _has_list(location) else [by_folder]:
            directory: Any = DirectoryNamespace(root=location, **way)  # type: ignore[no-untyped-call]
            listed_tables = [
                listed_table
                for listed_table in _list_tables_below(directory, location, ())
                if listed_table.parts not in names and listed_table.location not in locations
            ]
            names.update(listed_table.parts for listed_table in listed_tables)
            locations.update(listed_table.location for listed_table in listed_tables)
            yield from listed_tables
    except (LanceNamespaceError, OSError) as problem:
        raise InvalidRequest(f"{location} cannot be read as a Lance directory namespace: {problem}") from None


def _has_list(location: str) -> bool:
    names = _list_folders(location)
    if not names:
        raise InvalidRequest(f"there is no Lance directory namespace at {location}", root=location)
    return MANIFEST in names


def _list_tables_below(directory: Any, place: str, namespace: tuple[str, ...]) -> Iterator[ListedTable]:
    from lance_namespace import (
        DescribeTableRequest,
        ListNamespacesRequest,
        ListTablesRequest,
        TableNotFoundError,
    )

    for name in _read_pages(directory.list_tables, ListTablesRequest, "tables", namespace):
        parts = (*namespace, name)
        try:
            table = directory.describe_table(DescribeTableRequest(id=[*parts], check_declared=True))
        except TableNotFoundError:
            # Lance lists each folder, and cannot find some whose names are not plain: what it left of a table
            # that it keeps elsewhere, or a table.
            location = f"{place}/{name}.lance"
            if not namespace and _has_versions(location):
                yield ListedTable(parts, location)
            continue
        location = normalise_location(table.location)
        yield ListedTable(parts, location, bool(table.is_only_declared) and not _has_versions(location))
    for name in _read_pages(directory.list_namespaces, ListNamespacesRequest, "namespaces", namespace):
        yield from _list_tables_below(directory, place, (*namespace, name))


def _has_versions(location: str) -> bool:
    return VERSIONS.rstrip("/") in _list_folders(location)


def _list_folders(location: str) -> set[str]:
    places = Places()
    try:
        return {*places.open_place(location).folders()}
    finally:
        places.close()


def _read_pages(listing: Any, request: Any, field: str, namespace: tuple[str, ...]) -> Iterator[str]:
    token = None
    while True:
        page = listing(request(id=[*namespace], page_token=token))
        yield from sorted(getattr(page, field))
        if not (token := page.page_token):
            return


# -- what stands against it --------------------------------------------------------------------------------


def _find_problems(lake: Lake, tables: list[ImportedTable]) -> Iterator[str]:
    """Why tables cannot come to the lake, each with its reason."""
    roots = lake.do(GetAbout()).roots
    keys = {key for some in _split_into_batches(tables) for key in _find_existing_keys(lake, some)}
    for table in tables:
        if table.key in keys:
            yield f"{table.key}: this key is already in use"
            continue
        try:
            check_under(table.location, roots)
        except LocationRefused as problem:
            yield f"{table.key}: {problem.message}"
            continue
        if not table.is_declared and (why := _explain_unreadable(table.location)):
            yield f"{table.key}: {why}"


def _split_into_batches(tables: list[ImportedTable]) -> Iterator[list[ImportedTable]]:
    for start in range(0, len(tables), AT_ONCE):
        yield tables[start : start + AT_ONCE]


def _find_existing_keys(lake: Lake, tables: list[ImportedTable]) -> Iterator[Key]:
    entries = lake.do(GetContents(key=tuple(table.key for table in tables), at=lake.default_branch))
    return (entry.key for entry in entries)


def _explain_unreadable(location: str) -> str:
    import lance

    try:
        lance.dataset(location)
    except (OSError, ValueError) as problem:
        return f"Lance cannot open it: {str(problem).splitlines()[0]}"
    return ""
