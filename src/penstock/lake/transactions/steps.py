"""What a transaction has done so far: its own commits, and what differs by them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.model.transactions import TransactionState

if TYPE_CHECKING:
    from penstock.lake.answers import Difference
    from penstock.lake.lake import Lake
    from penstock.lake.transactions.answers import TransactionInfo
    from penstock.model.commits import Commit

PAGE: Final = 100


def list_steps(lake: Lake, info: TransactionInfo) -> list[Commit]:
    """The commits that were made in a transaction, newest first; none of one that was aborted."""
    head = _last_step_commit(lake, info)
    commits: list[Commit] = []
    while head is not None:
        page = lake.log(head, limit=PAGE, after=commits[-1].id if commits else None)
        for commit in page:
            if commit.id == info.base:
                return commits
            commits.append(commit)
        if len(page) < PAGE:
            break
    return commits


def list_changes(lake: Lake, info: TransactionInfo) -> list[Difference]:
    """What a transaction changes, or has changed where it landed; nothing if it was aborted."""
    if info.commit:
        return lake.changes(info.commit)
    head = _last_step_commit(lake, info)
    return [] if head is None else lake.diff(info.base, head)


def _last_step_commit(lake: Lake, info: TransactionInfo) -> str | None:
    """Where its last step is found; ``None`` if it has none that is kept."""
    if info.commit:
        return lake.show(info.commit).parents[-1]
    return info.branch if info.state in (TransactionState.OPEN, TransactionState.COMMITTING) else None
