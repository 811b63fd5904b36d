"""Which branch, tag or table was probably meant by a name that does not exist.

The names are asked of the catalogue that refused the name. That of a server's caller shows only what the
caller may read, so that no suggestion names anything else.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from penstock.errors import KeyNotFound, NotFound, PenstockError, ReferenceNotFound, TableNotFound
from penstock.lake.catalogue import Catalogue
from penstock.lake.read_calls import GetAbout, ListEntries, ListReferences
from penstock.model.content import Namespace
from penstock.model.keys import Key
from penstock.model.references import Kind
from penstock.model.similar_names import closest_name

NAMES_MAX: Final = 500
"""How many names of a kind are compared: a wrong name may not cost more than a page of right ones."""


def add_suggestion(problem: NotFound, catalogue: Catalogue) -> None:
    """Add to an error the name that was probably meant, if there is one and the error has none yet."""
    if "did_you_mean" in problem.details:
        return
    with suppress(PenstockError):
        name = _find_meant(problem, catalogue)
        if name is not None:
            problem.details["did_you_mean"] = name
            problem.message += f"\n  Did you mean '{name}'?"
            problem.args = (problem.message,)


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
    return closest_name(name, [reference.name for references in lists for reference in references])


def _find_key(text: str, ref: str | None, catalogue: Catalogue) -> str | None:
    """A table of the same namespace, else any."""
    if not text:
        return None
    at, limit = ref or catalogue.do(GetAbout()).default_branch, _page_size(catalogue)
    key = Key.parse(text)
    for namespace in key.parents[-1:]:
        tables = _list_tables(catalogue, ListEntries(at=at, prefix=namespace, limit=limit))
        if key in tables:
            return None  # created meanwhile, or another table now
        names = {table[-1]: str(table) for table in tables if table[:-1] == namespace}
        name = closest_name(key[-1], names)
        if name is not None:
            return names[name]
    tables = _list_tables(catalogue, ListEntries(at=at, limit=limit))
    return closest_name(text, [str(table) for table in tables if table[:-1] != key[:-1]])


def _list_tables(catalogue: Catalogue, call: ListEntries) -> list[Key]:
    return [entry.key for entry in catalogue.do(call) if not isinstance(entry.content, Namespace)]


def _page_size(catalogue: Catalogue) -> int:
    return min(catalogue.page_max or NAMES_MAX, NAMES_MAX)
