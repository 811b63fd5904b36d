"""Which branch, tag or table was probably meant by a name that does not exist.

The names are asked of the catalogue that refused the name. That of a server's caller shows only what the
caller may read, so that no suggestion names anything else.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from penstock.errors import KeyNotFound, NotFound, PenstockError, ReferenceNotFound, TableNotFound
from penstock.lake.catalogue import Catalogue
from penstock.lake.read_calls import GetAbout, GetContents, ListEntries, ListReferences
from penstock.model.content import Namespace
from penstock.model.keys import Key
from penstock.model.references import Kind
from penstock.model.similar_names import find_closest_name

NAMES_MAX: Final = 500
"""How many names of a kind are compared: a wrong name may not cost more than a page of right ones."""


def add_suggestion(problem: NotFound, catalogue: Catalogue) -> None:
    """Add to an error the name that was probably meant, or where the name exists, if it says neither yet."""
    if "did_you_mean" in problem.details or "is_at" in problem.details:
        return
    with suppress(PenstockError):
        if isinstance(problem, KeyNotFound) and (branch := _find_branch(problem, catalogue)) is not None:
            problem.details["is_at"] = branch
            _add_line(problem, f"It is there at '{branch}'.")
            return
        name = _find_meant(problem, catalogue)
        if name is not None:
            problem.details["did_you_mean"] = name
            _add_line(problem, f"Did you mean '{name}'?")


def _add_line(problem: NotFound, line: str) -> None:
    problem.message += f"\n  {line}"
    problem.args = (problem.message,)


def _find_branch(problem: KeyNotFound, catalogue: Catalogue) -> str | None:
    """The default branch, if that has what another revision has not."""
    text, ref = problem.details.get("key"), problem.details.get("ref")
    default = catalogue.do(GetAbout()).default_branch
    if not text or not ref or ref == default:
        return None
    key = Key.parse(str(text))
    return default if catalogue.do(GetContents(at=default, key=(key,))) else None


def _find_meant(problem: NotFound, catalogue: Catalogue) -> str | None:
    if isinstance(problem, ReferenceNotFound):
        return _find_reference(str(problem.details.get("name", "")), catalogue)
    if isinstance(problem, KeyNotFound | TableNotFound):
        key = problem.details.get("key", problem.details.get("table", ""))
        return _find_key(str(key), problem.details.get("ref"), catalogue)
    return None


def _find_reference(name: str, catalogue: Catalogue) -> str | None:
    if not name:
        return None
    kinds = (Kind.BRANCH, Kind.TAG)
    limit = _page_size(catalogue)
    lists = [catalogue.do(ListReferences(kind=kind, limit=limit)) for kind in kinds]
    return find_closest_name(name, [reference.name for references in lists for reference in references])


def _find_key(text: str, ref: str | None, catalogue: Catalogue) -> str | None:
    """A table of the same namespace, else any; or the only one that has this name in another namespace."""
    if not text:
        return None
    at, limit = ref or catalogue.do(GetAbout()).default_branch, _page_size(catalogue)
    key = Key.parse(text)
    for namespace in key.parents[-1:]:
        tables = _list_tables(catalogue, ListEntries(at=at, prefix=namespace, limit=limit))
        if key in tables:
            return None  # created meanwhile, or another table now
        names = {table[-1]: str(table) for table in tables if table[:-1] == namespace}
        name = find_closest_name(key[-1], names)
        if name is not None:
            return names[name]
    tables = _list_tables(catalogue, ListEntries(at=at, limit=limit))
    others = [table for table in tables if table[:-1] != key[:-1]]
    same = [table for table in others if table[-1] == key[-1]]
    return str(same[0]) if len(same) == 1 else find_closest_name(text, [str(table) for table in others])


def _list_tables(catalogue: Catalogue, call: ListEntries) -> list[Key]:
    return [entry.key for entry in catalogue.do(call) if not isinstance(entry.content, Namespace)]


def _page_size(catalogue: Catalogue) -> int:
    return min(catalogue.page_max or NAMES_MAX, NAMES_MAX)
