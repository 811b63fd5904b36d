"""Calls: everything that can be asked of a lake, one frozen value for each.

A program holds a ``Lake``; the lake makes calls and hands them to its catalogue, which answers them from a
kernel in this process or passes them to a server. So the embedded lake, the remote client, the native HTTP
API and the check of who may do what cannot differ in what there is to ask: it is this list.

Over HTTP a call is ``method`` and ``path``. Fields that the path names are in it; ``idempotency_key`` is the
header ``Idempotency-Key``; the others are the query of a ``GET`` or ``DELETE``, else the JSON body.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import msgspec

from penstock.kernel.fsck import Checked
from penstock.kernel.sweep import Swept
from penstock.lake import delta_calls
from penstock.lake.answers import About, Comparison, Difference, Entry, Landing, LogLine, Resolved, SweptTable
from penstock.lake.audits import calls as audit_calls
from penstock.lake.call import PAGE_MAX, Call, ReadAt, Said, Write, said
from penstock.lake.files import calls as files_calls
from penstock.lake.files import care_calls as files_care_calls
from penstock.lake.lance import calls as lance_calls
from penstock.lake.transactions import calls as transaction_calls
from penstock.model.commits import Commit
from penstock.model.encoding import ObjectId
from penstock.model.keys import Key
from penstock.model.merges import KeyMerge, MergeMode, MergeResult
from penstock.model.operations import Operation
from penstock.model.references import Kind, Reference
from penstock.model.tokens import Grant, Token

__all__ = ["CALLS", "PAGE_MAX", "Call", "ReadAt", "Said", "Write", "said"]
"""Beside the calls themselves: what they share is written in ``call``."""

# -- the lake itself ---------------------------------------------------------------------------------------


class GetAbout(Call[About], frozen=True, kw_only=True):
    """What the lake is."""

    path = "/lake"
    answer = About


class ChangeRoots(Call[About], frozen=True, kw_only=True):
    """Add places where tables may be, or take some back. Tables that are there already stay."""

    method = "POST"
    path = "/roots"
    answer = About
    makes_lake = True

    add: tuple[str, ...] = ()
    """Locations, such as `s3://bucket/tables`."""
    remove: tuple[str, ...] = ()
    """Roots that were added before."""


class GetSetting(Call[str | None], frozen=True, kw_only=True):
    """What somebody noted with the lake under a name."""

    path = "/settings/{name}"
    answer = str | None

    name: str


class PutSetting(Call[str | None], frozen=True, kw_only=True):
    """Note something with the lake under a name, or nothing any more; answers what was noted before."""

    method = "PUT"
    path = "/settings/{name}"
    answer = str | None
    makes_lake = True

    name: str
    value: str | None = None
    """Nothing removes the note."""


class KeepHistory(Call[None], frozen=True, kw_only=True):
    """Keep so many commits, and all that are younger; without limits, all history is kept again."""

    method = "PUT"
    path = "/history-rules"
    answer = None
    makes_lake = True

    pattern: str = "*"
    """Of the names of references."""
    max_commits: int | None = None
    """So many from the head on stay, whatever their age."""
    max_days: float | None = None
    """What is younger stays, however much it is."""


class SetGrace(Call[About], frozen=True, kw_only=True):
    """Set how long sweeps leave alone what nothing leads to; answers what the lake says of itself then.

    A shorter period holds for writers at once, and for sweeps when those who relied on the longer one are
    done. A lake with periods of its own cannot be opened by a Penstock that does not know of them.
    """

    method = "PUT"
    path = "/grace"
    answer = About

    grace_s: float | None = None
    """For objects that no reference leads to: 3600 or more. It stays as it is if nothing is given."""
    data_grace_days: float | None = None
    """For data files that no commit names: 4 or more. It stays as it is if nothing is given."""


class Sweep(Call[Swept], frozen=True, kw_only=True):
    """Remove objects that nothing leads to any more and that are older than the grace period."""

    method = "POST"
    path = "/sweep"
    answer = Swept
    is_long = True

    dry_run: bool = False
    """Only count what would be removed."""


class SweepTables(Call[tuple[SweptTable, ...]], frozen=True, kw_only=True):
    """Remove files of Delta and Lance tables that nothing needs: what writers left that did not commit.

    Data files that no kept commit names, and that are older than the data grace time, are only counted unless
    it is asked to remove them. The next page is ``after`` the last location.
    """

    method = "POST"
    path = "/sweep/tables"
    answer = tuple[SweptTable, ...]
    is_long = True

    key: Key | None = None
    """Only the table at this key."""
    remove_data: bool = False
    """Remove data files too."""
    dry_run: bool = False
    """Remove nothing at all, and only count."""
    after: str = ""
    """Go on after this location, the last one of the page before."""
    limit: int | None = 100
    """At most so many tables."""


class Fsck(Call[Checked], frozen=True, kw_only=True):
    """Check every reachable object's hash, order and shape."""

    method = "POST"
    path = "/fsck"
    answer = Checked
    is_long = True


# -- tokens ------------------------------------------------------------------------------------------------


class ListTokens(Call[tuple[Token, ...]], frozen=True, kw_only=True):
    """Every token that may be used here, without its secret."""

    path = "/tokens"
    answer = tuple[Token, ...]


class PutToken(Call[Token], frozen=True, kw_only=True):
    """Let a token be used. Its maker keeps the secret; here is only its hash.

    The same token sent again is answered; another one under the same id is refused.
    """

    method = "PUT"
    path = "/tokens/{id}"
    answer = Token
    makes_lake = True

    id: str
    """12 hexadecimal digits, the part of the token before its secret."""
    name: str
    """Who it is for; what they write says so."""
    secret_hash: ObjectId
    """SHA-256 of the secret."""
    grants: tuple[Grant, ...]
    """What it allows; each of them by itself."""
    expires: datetime | None = None
    """Until when it can be used; for ever if nothing is given."""


class RevokeToken(Call[Token], frozen=True, kw_only=True):
    """Let a token not be used any more."""

    method = "DELETE"
    path = "/tokens/{id}"
    answer = Token

    id: str


# -- references --------------------------------------------------------------------------------------------


class ListReferences(Call[tuple[Reference, ...]], frozen=True, kw_only=True):
    """References of one kind by name; the next page is ``after`` the last name."""

    path = "/references"
    answer = tuple[Reference, ...]

    kind: Kind = Kind.BRANCH
    """`branch`, `tag` or `deleted`."""
    prefix: str = ""
    """How the names begin."""
    after: str = ""
    """Go on after this name, the last one of the page before."""
    limit: int | None = 100
    """At most so many."""


class GetReference(Call[Reference], frozen=True, kw_only=True):
    """A branch or tag as it is now."""

    path = "/references/{name}"
    answer = Reference

    name: str


class GetReferenceLog(Call[tuple[LogLine, ...]], frozen=True, kw_only=True):
    """What happened to a branch or tag, newest first; also to a deleted one."""

    path = "/references/{name}/log"
    answer = tuple[LogLine, ...]

    name: str
    before: int | None = None
    """Go on before this position, the last one of the page before."""
    limit: int | None = 100
    """At most so many."""


class CreateReference(Write[Reference], frozen=True, kw_only=True):
    """Create a branch or tag."""

    path = "/references"
    target = "name"
    moves = True
    answer = Reference
    makes_lake = True

    name: str
    kind: Kind = Kind.BRANCH
    at: str | None = None
    """The revision that it names; the default branch's head if nothing is given."""


class AssignReference(Write[Reference], frozen=True, kw_only=True):
    """Let a branch or tag name another commit."""

    method = "PUT"
    path = "/references/{name}"
    target = "name"
    moves = True
    answer = Reference

    name: str
    to: str
    """The revision that it is to name."""
    kind: Kind | None = None
    """Refuse it if the reference is of another kind."""
    expected: str | None = None
    """Refuse it unless the reference is at this commit."""


class DeleteReference(Write[Reference], frozen=True, kw_only=True):
    """Delete a branch or tag; its log can still be read for a while. Answers what it was."""

    method = "DELETE"
    path = "/references/{name}"
    target = "name"
    moves = True
    answer = Reference

    name: str
    kind: Kind | None = None
    """Refuse it if the reference is of another kind."""
    expected: str | None = None
    """Refuse it unless the reference is at this commit."""


# -- reading -----------------------------------------------------------------------------------------------


class Resolve(Call[Resolved], frozen=True, kw_only=True):
    """The commit that a revision such as ``main~3`` names."""

    path = "/resolve"
    answer = Resolved

    revision: str | None = None
    """The default branch if nothing is given."""


class GetContents(ReadAt[tuple[Entry, ...]], frozen=True, kw_only=True):
    """What keys hold; those that hold nothing are left out."""

    path = "/contents"
    answer = tuple[Entry, ...]

    key: tuple[Key, ...]
    """May be given several times."""


class ListEntries(ReadAt[tuple[Entry, ...]], frozen=True, kw_only=True):
    """Keys and what they hold, in order; the next page is ``after`` the last key."""

    path = "/entries"
    answer = tuple[Entry, ...]

    prefix: Key | None = None
    """Only this key and what is below it."""
    after: Key | None = None
    """Go on after this key, the last one of the page before."""
    limit: int | None = 100
    """At most so many."""


class GetCommit(Call[Commit], frozen=True, kw_only=True):
    """A commit."""

    path = "/commits/{revision}"
    answer = Commit

    revision: str
    via: str | None = None
    """The reference that led to the commit, where only its id is given."""


class GetChanges(Call[tuple[Difference, ...]], frozen=True, kw_only=True):
    """What a commit changed, compared with its first parent; the next page is ``after`` the last key."""

    path = "/commits/{revision}/changes"
    answer = tuple[Difference, ...]

    revision: str
    via: str | None = None
    """The reference that led to the commit, where only its id is given."""
    after: Key | None = None
    """Go on after this key, the last one of the page before."""
    limit: int | None = 100
    """At most so many."""


class ListCommits(Call[tuple[Commit, ...]], frozen=True, kw_only=True):
    """Commits, newest first, that match everything given."""

    path = "/log"
    answer = tuple[Commit, ...]

    ref: str | None = None
    """The revision to begin at; the default branch if nothing is given."""
    via: str | None = None
    """The reference that led to the commit, where only its id is given."""
    table: Key | None = None
    """Only those that changed this key, or something below it."""
    author: str | None = None
    """Only those that name this author."""
    since: datetime | None = None
    """Only those from this time on."""
    until: datetime | None = None
    """Only those up to this time."""
    text: str | None = None
    """Only those whose message contains this, in any case."""
    after: str | None = None
    """Go on after this commit, the last one of the page before."""
    all_parents: bool = False
    """Also show what was merged."""
    limit: int | None = 100
    """At most so many."""


class Diff(Call[tuple[Difference, ...]], frozen=True, kw_only=True):
    """What differs between two revisions, by key; the next page is ``after`` the last key."""

    path = "/diff"
    answer = tuple[Difference, ...]

    before: str
    """The revision to compare with."""
    before_via: str | None = None
    """The reference that led to it, where only a commit's id is given."""
    to: str
    """The revision that is compared."""
    to_via: str | None = None
    """The reference that led to it, where only a commit's id is given."""
    prefix: Key | None = None
    """Only this key and what is below it."""
    after: Key | None = None
    """Go on after this key, the last one of the page before."""
    limit: int | None = 100
    """At most so many."""


class Compare(Call[Comparison], frozen=True, kw_only=True):
    """How two revisions are related: their common ancestor, and how many commits only one of them has."""

    path = "/compare"
    answer = Comparison

    one: str
    """A revision."""
    other: str
    """Another one."""


class GetOutcome(Call[Landing | None], frozen=True, kw_only=True):
    """What the request with an idempotency key came to; nothing if it was not applied."""

    path = "/outcomes/{key}"
    answer = Landing | None

    key: str
    """The idempotency key."""
    branch: str | None = None
    """The branch or tag that the request was about; the default branch if nothing is given."""
    asked: ObjectId | None = None
    """A hash of the request as it was asked; with it, only what this very request came to is told."""


# -- writing -----------------------------------------------------------------------------------------------


class CommitOperations(Write[Commit], frozen=True, kw_only=True):
    """Carry out operations on a branch, all or none."""

    path = "/commits"
    target = "branch"
    answer = Commit
    makes_lake = True

    operations: tuple[Operation, ...]
    """What to do; no key twice, except to delete it and put it anew."""
    branch: str | None = None
    """The default branch if nothing is given."""
    said: Said = Said()
    """What the commit says of itself."""
    base: str | None = None
    """The commit that was read: every key must still hold what it held there."""
    if_head: str | None = None
    """Refuse it unless the branch is at this commit."""
    incarnation: ObjectId | None = None
    """Refuse a branch that was deleted and created anew."""
    create_namespaces: bool = False
    """Create the namespaces above what is put, where they are missing."""


class Bring(Write[MergeResult], frozen=True, kw_only=True):
    """A call that brings changes from elsewhere to a branch."""

    answer = MergeResult

    keys: dict[str, KeyMerge] = msgspec.field(default_factory=dict)
    """How to treat single keys, which are written as text."""
    default: MergeMode = MergeMode.NORMAL
    """How to treat all other keys."""
    if_head: str | None = None
    """Refuse it unless the branch is at this commit."""
    dry_run: bool = False
    """Only tell what would be done, and what is in the way."""


class Merge(Bring, frozen=True, kw_only=True):
    """Bring what a branch, tag or commit has and another branch has not."""

    path = "/merge"
    target = "into"

    source: str
    """A branch, tag or other revision."""
    into: str | None = None
    """The branch that changes; the default one if nothing is given."""
    said: Said = Said()
    """What the merge commit says of itself."""


class Transplant(Bring, frozen=True, kw_only=True):
    """Repeat commits on a branch, each as a commit of its own, all by one swap."""

    path = "/transplant"
    target = "onto"

    commits: tuple[str, ...]
    """Revisions, oldest first, or one range such as ``dev~3..dev`` (without its start)."""
    onto: str | None = None
    """The branch that changes; the default one if nothing is given."""
    said: Said = Said()
    """A message for a single commit; several keep theirs."""


class Revert(Bring, frozen=True, kw_only=True):
    """Undo on a branch what one of its commits did, by a new commit."""

    path = "/revert"
    target = "on"

    commit: str
    """The revision to undo."""
    on: str | None = None
    """The branch that changes; the default one if nothing is given."""
    said: Said = Said()
    """What the new commit says of itself."""


class Rebase(Bring, frozen=True, kw_only=True):
    """Repeat a branch's own commits on top of another revision, and move the branch there."""

    path = "/rebase"
    target = "branch"
    moves = True

    branch: str
    """The branch that moves."""
    onto: str | None = None
    """The revision to build on; the default branch if nothing is given."""


CALLS: Final[tuple[type[Call[Any]], ...]] = (
    GetAbout,
    ChangeRoots,
    GetSetting,
    PutSetting,
    KeepHistory,
    SetGrace,
    Sweep,
    SweepTables,
    Fsck,
    ListTokens,
    PutToken,
    RevokeToken,
    ListReferences,
    GetReference,
    GetReferenceLog,
    CreateReference,
    AssignReference,
    DeleteReference,
    Resolve,
    GetContents,
    ListEntries,
    GetCommit,
    GetChanges,
    ListCommits,
    Diff,
    Compare,
    GetOutcome,
    CommitOperations,
    Merge,
    Transplant,
    Revert,
    Rebase,
    *delta_calls.CALLS,
    *files_calls.CALLS,
    *files_care_calls.CALLS,
    *lance_calls.CALLS,
    *transaction_calls.CALLS,
    *audit_calls.CALLS,
)
"""All of them."""
