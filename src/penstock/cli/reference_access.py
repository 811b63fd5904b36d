"""Reading a commit by way of the reference that led to it.

Behind a server, who may read some branches only may read a commit only as part of one of them. So whoever
knows by which reference they came to a commit says so. Elsewhere it makes no difference.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from penstock.errors import HistoryExpired, PenstockError
from penstock.lake import calls
from penstock.lake.answers import Difference
from penstock.lake.lake import Lake
from penstock.model.commits import Commit
from penstock.model.names import parse_revision

T = TypeVar("T")


def find_reference_name(revision: str) -> str | None:
    """The reference that a revision starts from; ``None`` if that is a commit's id."""
    return parse_revision(revision).name


def write_revision(commit: str, via: str | None) -> str:
    """A revision that names a commit by its id, as one of a reference if that is known."""
    return f"{via}@{commit}" if via is not None else commit


def get_commit(lake: Lake, commit: str, via: str | None) -> Commit:
    """The commit with an id."""
    return lake.do(calls.GetCommit(revision=commit, via=via))


def find_changes(lake: Lake, commit: Commit, via: str | None) -> list[Difference] | None:
    """What a commit changed; ``None`` if what was before it has expired."""
    call = calls.GetChanges(revision=commit.id, via=via)
    try:
        return lake.pages(call, None, lambda last: {"after": last.key})
    except HistoryExpired:
        return None


def read_or_none(read: Callable[[], T]) -> T | None:
    """What a read gives that only adds to an answer; ``None`` if it cannot be read.

    After a write that was applied, and beside a conflict, it must not become the answer that the rest could
    not be read.
    """
    try:
        return read()
    except PenstockError:
        return None
