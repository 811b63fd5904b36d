"""What there is to promote of a Lance table: one task for each state of a chain that landed."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple
from uuid import UUID

from penstock.formats.lance.content import LanceTable
from penstock.formats.lance.state import LanceState
from penstock.formats.publisher import JobId
from penstock.model.keys import Key

PENDING_MAX: Final = 100
"""How many tasks of a chain are kept: what landed last has all that landed before it."""
STAGED_MAX: Final = 1000
"""How many files are removed at once. If more wait, a sweep has to take the others."""


class PromoteWork(Enum):
    """What there is to do for a chain."""

    VERSIONS = 1
    """Its manifests are put where everybody looks."""
    REFS = 2
    """So are Lance's own branches and tags."""
    STAGED = 3
    """What writers staged is removed."""


class PromoteTask(NamedTuple):
    """A table as it landed on the branch whose chain it goes on in."""

    key: Key
    content: LanceTable
    state: LanceState
    branch: str = ""
    """The lake's; empty if it is not known."""
    work: PromoteWork = PromoteWork.VERSIONS
    staged: tuple[str, ...] = ()
    """What is to be removed, below the table's folder."""

    @property
    def table(self) -> UUID:
        assert self.content.id is not None, "a managed table has an id"
        return self.content.id

    @property
    def id(self) -> JobId:
        return make_job_id(self.table, self.state.chain, self.work)

    @property
    def location(self) -> str:
        return self.content.location


def make_job_id(table: UUID, chain: str = "", work: PromoteWork = PromoteWork.VERSIONS) -> JobId:
    """The job of a chain of a table, and of what is done for it. No chain is the default branch's."""
    return JobId(table, (chain, work), work is not PromoteWork.VERSIONS)


def merge_tasks(pending: Sequence[PromoteTask], task: PromoteTask, *, is_taken: bool) -> list[PromoteTask]:
    """What is pending for a chain after one more task: all of them, since they may come in another order than
    they landed in, so that none has what all have. Files to be removed are joined."""
    if task.work is PromoteWork.STAGED and pending and not is_taken:
        *pending, last = pending
        task = task._replace(staged=(*last.staged, *task.staged)[-STAGED_MAX:])
    return [*pending[1 - PENDING_MAX :], task]
