"""Exporting: a directory namespace that has the tables of a lake, for who goes on without it.

Tables stay where they are, and a list of them (Lance's own ``__manifest``) is made in a folder above all of
them. Whoever opens that folder as a directory namespace finds the tables by the names that they have in the
lake, each with the versions of one branch. Lance keeps only places below the folder, so that no table may lie
elsewhere.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.errors import InvalidRequest, PenstockError
from penstock.formats.lance.state import is_managed
from penstock.lake.lance.answers import LanceAbout
from penstock.lake.lance.calls import GetLanceTable, PromoteLance
from penstock.model.content import LanceTable
from penstock.model.keys import Key
from penstock.storage.locations import is_under, normalise

if TYPE_CHECKING:
    from penstock.lake.lake import Lake

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
    ref: str
    tables: tuple[ExportedTable, ...]
    """By key."""
    unchanged: int = 0
    """How many of them were there already."""
    dry_run: bool = False


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
    if dry_run or not found:
        return exported
    for one in found:
        lake.do(PromoteLance(key=one.key, branch=branch))
    return msgspec.structs.replace(exported, unchanged=_list(place, found))


def _checked(about: LanceAbout, place: str) -> ExportedTable:
    if about.is_private:
        raise InvalidRequest("is private: its versions are nowhere but in the lake")
    folder = normalise(about.folder)
    if folder == place or not is_under(folder, place):
        raise InvalidRequest(f"is at {folder}, which does not lie below {place}")
    if any(DELIMITER in part for part in about.key):
        raise InvalidRequest(f"has a '{DELIMITER}' in its name, which stands between names there")
    return ExportedTable(key=about.key, folder=folder, version=about.version)


def _list(place: str, tables: list[ExportedTable]) -> int:
    """Make the list, or add to it; say how many tables it had already."""
    from lance.namespace import DirectoryNamespace
    from lance_namespace import LanceNamespaceError

    try:
        directory: Any = DirectoryNamespace(root=place, **READ_WITH)  # type: ignore[no-untyped-call]
        for namespace in sorted({parent for one in tables for parent in one.key.parents}):
            _make_namespace(directory, namespace)
        return sum(not _register(directory, place, one) for one in tables)
    except (LanceNamespaceError, OSError) as problem:
        raise InvalidRequest(f"{place} cannot be made a Lance directory namespace: {problem}") from None


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
