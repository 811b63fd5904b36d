"""What a program may say with a call, where several methods take the same: as typed keyword arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TypedDict

from penstock.lake.call import CommitOptions
from penstock.model.commits import Commit
from penstock.model.keys import Key
from penstock.model.merges import HowToMerge, MergeMode


class CommitFilter(TypedDict, total=False):
    """Which commits a log shows, beside those of a table and of a time."""

    author: str | None
    """Only commits that name this author."""
    text: str | None
    """Only commits whose messages contain this."""
    after: str | None
    """Continue after the commit with this id, the last one of the previous page."""
    all_parents: bool
    """Also show merged commits."""


class TableLogOptions(CommitFilter, total=False):
    """Which commits of a table are shown."""

    since: str | datetime | None
    """Only commits that are not older."""
    until: str | datetime | None
    """Only commits that are not newer."""
    limit: int | None
    """The most commits to return, by default 100; ``None`` for all."""


class LogOptions(TableLogOptions, total=False):
    """Which commits are shown."""

    table: str | Key | None
    """Only commits that changed this table, or something in this namespace."""


class BranchCommitOptions(CommitOptions, total=False):
    """What may be said with operations on a branch."""

    properties: Mapping[str, str | Sequence[str]] | None
    """Of the commit."""
    base: str | None
    """The commit that was read: every key must still hold what it held there."""
    if_head: str | None
    """Refuse the commit unless the branch is at this commit."""
    incarnation: bytes | None
    """Refuse a branch that was deleted and created anew; that of ``branch.reference``."""
    create_namespaces: bool
    """Create namespaces that are not there."""


class RebaseOptions(TypedDict, total=False):
    """How commits are repeated elsewhere."""

    keys: Mapping[str | Key, HowToMerge] | None
    """How single keys are merged: ``"force"``, ``"drop"``, or a ``KeyMerge``."""
    default: MergeMode | str
    """How all other keys are merged."""
    if_head: str | None
    """Refuse the merge unless the target branch is at this commit."""
    dry_run: bool
    """Change nothing, and report what would change and what conflicts."""
    idempotency_key: str | None
    """An idempotency key: the same request under the same key is done once."""


class BranchMergeOptions(RebaseOptions, total=False):
    """How a branch is merged into another."""

    message: str | None
    """The message of the commit; by default one that names the source."""
    author: str | None
    """The author of the merge; by default that of the opened lake."""


class BranchRestoreOptions(CommitOptions, total=False):
    """What is restored, and to which state."""

    to: str | Commit | None
    """A revision, such as ``"main~3"``, a tag, or ``"main*2026-11-14"``."""
    namespace: str | Key | None
    """This namespace and all that is below it."""
    all: bool
    """Every table."""
    leave: str | Key | Sequence[str | Key]
    """What stays as it is."""
    version: int | None
    """The version that a single Delta or Lance table is restored to."""
    if_head: str | None
    """Refuse the restore unless the branch is at this commit."""
    dry_run: bool
    """Change nothing, and report what would change."""


class TransactionOptions(TypedDict, total=False):
    """What may be said of a transaction when it begins."""

    message: str
    """The message of the commit."""
    isolation: str
    """``"snapshot"``, or ``"serializable"``: then all that it has read must be unchanged when it lands."""
    policy: str
    """``"rebase"`` merges with what others changed meanwhile, ``"snapshot"`` refuses."""
    lease_s: float | None
    """The lease, in seconds; this process renews it."""
    properties: Mapping[str, str] | None
    """Properties of the transaction, shown in lists."""
