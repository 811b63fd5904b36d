"""The load: which writer commits what, where."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from itertools import count
from typing import Final

from penstock.model.keys import Key
from penstock.model.nessie import make_table_pointer
from penstock.model.operations import Put

BRANCHES: Final = 64
TABLES: Final = 1000
NAMESPACE: Final = "bench"


class LoadShape(StrEnum):
    """How the commits of many writers meet."""

    ONE_BRANCH = "one-branch"
    MANY_BRANCHES = "many-branches"
    ONE_TABLE = "one-table"

    @property
    def branches(self) -> int:
        """How many branches it needs."""
        return BRANCHES if self is LoadShape.MANY_BRANCHES else 1

    @property
    def description(self) -> str:
        return _MEANINGS[self]


_MEANINGS: Final = {
    LoadShape.ONE_BRANCH: "all on one branch, each writer its own table",
    LoadShape.MANY_BRANCHES: f"spread over {BRANCHES} branches, no two writers on the same",
    LoadShape.ONE_TABLE: "all on one branch and one table, without a base, so that none is refused",
}


class WriterLoad:
    """What a number of writers commit, one table a commit, never the same content twice."""

    def __init__(self, shape: LoadShape, writers: int, branches: Sequence[str]) -> None:
        self.shape, self.writers, self._branches = shape, writers, branches
        self._versions = count(1)

    def branch(self, writer: int, number: int) -> str:
        """Where a writer's ``number``-th commit goes: in turn to those branches that are the writer's."""
        own = self._list_own_tables(writer)
        return own[number % len(own)]

    def round_commits(self, writer: int) -> int:
        """How many commits bring a writer to each of its branches."""
        return len(self._list_own_tables(writer))

    def _list_own_tables(self, writer: int) -> Sequence[str]:
        return self._branches[writer % len(self._branches) :: self.writers]

    def next_operation(self, writer: int) -> Put:
        """What a writer's next commit does: a new version of the writer's table, or of everybody's."""
        apart = 0 if self.shape is LoadShape.ONE_TABLE else max(TABLES // self.writers, 1)
        return make_put(writer * apart % TABLES, next(self._versions))


def make_put(table: int, version: int) -> Put:
    """A version of a table: the kind of content that a catalogue holds, some 100 bytes."""
    location = f"s3://bench/{NAMESPACE}/table{table:04}/metadata/{version:08}.metadata.json"
    return Put(Key(NAMESPACE, f"table{table:04}"), make_table_pointer(location, version))
