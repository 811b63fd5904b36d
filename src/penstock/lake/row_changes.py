"""Changes of rows that are there: deletions, updates and merges, whatever the format and the engine."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import msgspec

from penstock.errors import InvalidRequest
from penstock.model.commits import Commit
from penstock.model.keys import Key

if TYPE_CHECKING:
    from penstock.lake.call import CommitDescription
    from penstock.lake.table import Table

RowValues: TypeAlias = Mapping[str, Any]
"""New values by the names of columns, with a part of a struct as ``address.city``: text is SQL over the row
as it was, anything else is itself."""

MATCHED: Final = "matched"
NOT_MATCHED: Final = "not matched"
NOT_MATCHED_BY_SOURCE: Final = "not matched by source"
UPDATE: Final = "update"
DELETE: Final = "delete"
INSERT: Final = "insert"


def check_assigned_once(name: str, path: tuple[str, ...], others: Iterable[tuple[str, ...]]) -> None:
    """``InvalidRequest`` if a column, or a part of one, is among others that have new values already."""
    for other in others:
        if path[: len(other)] == other[: len(path)]:
            raise InvalidRequest(
                f"'{name}' is assigned twice"
                if path == other
                else f"'{name}' is assigned both as a whole and in part",
                column=name,
            )


class ChangedRows(msgspec.Struct, frozen=True, kw_only=True):
    """What a change of rows came to."""

    key: Key
    commit: Commit | None = None
    """Of the lake; ``None`` if there was nothing to change."""
    version: int | None = None
    """Of the table, that has the change; ``None`` if nothing changed."""
    deleted: int | None = 0
    """How many rows; ``None`` if that is not known: whole files went, or an earlier attempt did it."""
    updated: int | None = 0
    inserted: int | None = 0
    is_repeated: bool = False
    """Whether this was done before, under the same idempotency key."""


class MergeClause(NamedTuple):
    """What a merge does with some of the rows of a kind."""

    kind: str
    action: str
    values: RowValues | None = None
    """``None`` for all columns of the source, by their names."""
    condition: Any = None


def check_clauses(clauses: Sequence[MergeClause]) -> None:
    """``InvalidRequest`` for a merge that does nothing, or has a clause that never applies."""
    if not clauses:
        raise InvalidRequest(
            "the merge has no clause: add a clause for rows that match, or for rows that do not"
        )
    for number, clause in enumerate(clauses):
        later = any(other.kind == clause.kind for other in clauses[number + 1 :])
        if later and clause.condition is None:
            raise InvalidRequest(
                f"a clause for rows that are {clause.kind} has no condition, so the clauses after it would "
                "never apply; only the last clause can be without a condition"
            )
        if clause.action != DELETE and clause.values is not None and not clause.values:
            raise InvalidRequest("no column is assigned; name at least one")


def check_source_columns(
    key: Key, table: Sequence[str], source: Sequence[str], filled: Collection[str] = ()
) -> None:
    """``InvalidRequest`` if all columns are to be taken from a source that has others than the table; it may
    lack those that the table gives values to itself."""
    given_names = {name.lower() for name in source}
    columns = {name.lower() for name in table}
    problems = [
        f"the source has no column '{name}'"
        for name in sorted(columns - given_names - {name.lower() for name in filled})
    ]
    problems += [f"the table has no column '{name}'" for name in sorted(given_names - columns)]
    if problems:
        raise InvalidRequest(f"'{key}' cannot take all columns of the source: {'; '.join(problems)}")


def takes_all_columns(clauses: Sequence[MergeClause]) -> bool:
    """Whether a clause takes all columns of the source."""
    return any(clause.values is None for clause in clauses)


def deletes_all_matched(clauses: Sequence[MergeClause]) -> bool:
    """Whether all that is done to matched rows is to delete them: then several may match one."""
    matched = [clause for clause in clauses if clause.kind == MATCHED]
    return len(matched) == 1 and matched[0].action == DELETE and matched[0].condition is None


class MergeStatement(NamedTuple):
    """A merge of rows into a table that is being described. Each step gives a new one; nothing is read before
    ``commit``."""

    carry_out: Callable[[tuple[MergeClause, ...]], ChangedRows]
    clauses: tuple[MergeClause, ...] = ()

    def when_matched_update(self, set: RowValues, condition: str | None = None) -> MergeStatement:  # noqa: A002
        """Give columns of rows that the source matches new values, as in ``update``."""
        return self._add_clause(MergeClause(MATCHED, UPDATE, set, condition))

    def when_matched_update_all(self, condition: str | None = None) -> MergeStatement:
        """Put the source's row in the place of the one that it matches; it has all columns of the table."""
        return self._add_clause(MergeClause(MATCHED, UPDATE, None, condition))

    def when_matched_delete(self, condition: str | None = None) -> MergeStatement:
        """Delete rows that the source matches."""
        return self._add_clause(MergeClause(MATCHED, DELETE, {}, condition))

    def when_not_matched_insert(self, values: RowValues, condition: str | None = None) -> MergeStatement:
        """Insert a row for one of the source that matches none; columns without a value are null."""
        return self._add_clause(MergeClause(NOT_MATCHED, INSERT, values, condition))

    def when_not_matched_insert_all(self, condition: str | None = None) -> MergeStatement:
        """Insert rows of the source that match none; they have all columns of the table."""
        return self._add_clause(MergeClause(NOT_MATCHED, INSERT, None, condition))

    def when_not_matched_by_source_update(
        self,
        set: RowValues,  # noqa: A002
        condition: str | None = None,
    ) -> MergeStatement:
        """Give columns of rows that the source does not match new values, made of the rows alone."""
        return self._add_clause(MergeClause(NOT_MATCHED_BY_SOURCE, UPDATE, set, condition))

    def when_not_matched_by_source_delete(self, condition: str | None = None) -> MergeStatement:
        """Delete rows that the source does not match."""
        return self._add_clause(MergeClause(NOT_MATCHED_BY_SOURCE, DELETE, {}, condition))

    def commit(self) -> ChangedRows:
        """Do all of it as one version of the table.

        ``InvalidRequest`` if a row would be changed by several rows of the source, unless all that is done
        to matched rows is to delete them. ``TableConflict`` if others changed meanwhile what it rests on.
        """
        check_clauses(self.clauses)
        return self.carry_out(self.clauses)

    def _add_clause(self, clause: MergeClause) -> MergeStatement:
        return self._replace(clauses=(*self.clauses, clause))


class RowFunctions(NamedTuple):
    """What a format changes rows with. Each takes the table, and what the method of ``RowStatements``
    takes."""

    delete: Callable[[Table, str | None, CommitDescription, str | None], ChangedRows]
    update: Callable[[Table, RowValues, str | None, CommitDescription, str | None], ChangedRows]
    merge: Callable[
        [Table, Any, str | Sequence[str], tuple[MergeClause, ...], CommitDescription, str | None], ChangedRows
    ]


class RowStatements:
    """The statements that change rows of a table, as a format carries them out."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def load_functions(self) -> RowFunctions:
        """What the format changes rows with, loaded when it is used: it takes a while to import, and much
        memory."""
        raise NotImplementedError

    def delete(
        self, where: str | None, description: CommitDescription, idempotency_key: str | None
    ) -> ChangedRows:
        return self.load_functions().delete(self._table, where, description, idempotency_key)

    def update(
        self,
        values: RowValues,
        where: str | None,
        description: CommitDescription,
        idempotency_key: str | None,
    ) -> ChangedRows:
        return self.load_functions().update(self._table, values, where, description, idempotency_key)

    def merge(
        self,
        source: Any,
        on: str | Sequence[str],
        clauses: tuple[MergeClause, ...],
        description: CommitDescription,
        idempotency_key: str | None,
    ) -> ChangedRows:
        return self.load_functions().merge(self._table, source, on, clauses, description, idempotency_key)
