"""Calls: everything that can be asked of a lake, one frozen value for each.

A program holds a ``Lake``; the lake makes calls and hands them to its catalogue, which answers them from a
kernel in this process or passes them to a server. So the embedded lake, the remote client, the native HTTP
API and the check of who may do what cannot differ in what there is to ask: it is this list.

Over HTTP a call is ``method`` and ``path``. Fields that the path names are in it; ``idempotency_key`` is the
header ``Idempotency-Key``; the others are the query of a ``GET`` or ``DELETE``, else the JSON body.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar, Final, Generic, TypeVar

import msgspec

from penstock.kernel.fsck import Checked
from penstock.kernel.sweep import Swept
from penstock.lake.answers import About, Comparison, Difference, Entry, Landing, LogLine, Resolved
from penstock.model.commits import Commit
from penstock.model.encoding import ObjectId
from penstock.model.keys import Key
from penstock.model.merges import KeyMerge, MergeMode, MergeResult
from penstock.model.operations import Operation
from penstock.model.references import Kind, Reference
from penstock.model.tokens import Grant, Token

R = TypeVar("R")

PAGE_MAX: Final = 1000
"""How many items a call asks for at once, where it goes through a list page by page."""


class Call(msgspec.Struct, Generic[R], frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What all calls share: how they travel, and the type of their answer."""

    method: ClassVar[str] = "GET"
    path: ClassVar[str]
    answer: ClassVar[Any]


class Write(Call[R], frozen=True, kw_only=True):
    """A call that changes a branch or tag, once, however often it is sent with the same key."""

    method: ClassVar[str] = "POST"

    idempotency_key: str | None = None
    """The same request under the same key is done once. A remote client makes one if it is not given."""
    who: str = ""
    """Who acts. A server puts the name of the caller's token here, if there is one."""


class Said(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a writer says about a commit."""

    message: str | None = None
    """If it is not given, one is made up that tells what was done."""
    authors: tuple[str, ...] = ()
    """Who wrote it; whoever acts, if nobody is named."""
    signed_off_by: tuple[str, ...] = ()
    author_time_us: int = 0
    """When it was written; when it is committed, if nothing is said."""
    properties: dict[str, tuple[str, ...]] = {}


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

    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()


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

    name: str
    value: str | None = None


class KeepHistory(Call[None], frozen=True, kw_only=True):
    """Keep so many commits, and all that are younger; without limits, all history is kept again."""

    method = "PUT"
    path = "/history-rules"
    answer = None

    pattern: str = "*"
    """Of the names of references."""
    max_commits: int | None = None
    max_days: float | None = None


class Sweep(Call[Swept], frozen=True, kw_only=True):
    """Remove objects that nothing leads to any more and that are older than the grace period."""

    method = "POST"
    path = "/sweep"
    answer = Swept

    dry_run: bool = False


class Fsck(Call[Checked], frozen=True, kw_only=True):
    """Check every reachable object's hash, order and shape."""

    method = "POST"
    path = "/fsck"
    answer = Checked


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

    id: str
    name: str
    secret_hash: ObjectId
    """SHA-256 of the secret."""
    grants: tuple[Grant, ...]
    expires: datetime | None = None


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
    prefix: str = ""
    after: str = ""
    limit: int | None = 100


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


class CreateReference(Write[Reference], frozen=True, kw_only=True):
    """Create a branch or tag."""

    path = "/references"
    answer = Reference

    name: str
    kind: Kind = Kind.BRANCH
    at: str | None = None
    """The revision that it names; the default branch's head if nothing is given."""


class AssignReference(Write[Reference], frozen=True, kw_only=True):
    """Let a branch or tag name another commit."""

    method = "PUT"
    path = "/references/{name}"
    answer = Reference

    name: str
    to: str
    kind: Kind | None = None
    """Refuse it if the reference is of another kind."""
    expected: str | None = None
    """Refuse it unless the reference is at this commit."""


class DeleteReference(Write[Reference], frozen=True, kw_only=True):
    """Delete a branch or tag; its log can still be read for a while. Answers what it was."""

    method = "DELETE"
    path = "/references/{name}"
    answer = Reference

    name: str
    kind: Kind | None = None
    expected: str | None = None


# -- reading -----------------------------------------------------------------------------------------------


class Resolve(Call[Resolved], frozen=True, kw_only=True):
    """The commit that a revision such as ``main~3`` names."""

    path = "/resolve"
    answer = Resolved

    revision: str | None = None


class ReadAt(Call[R], frozen=True, kw_only=True):
    """A call that reads the lake at a commit."""

    at: str | None = None
    """A revision; the default branch's head if nothing is given."""
    via: str | None = None
    """The reference that led to the commit, where ``at`` is only its id: who may read that may read this."""


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
    limit: int | None = 100


class GetCommit(Call[Commit], frozen=True, kw_only=True):
    """A commit."""

    path = "/commits/{revision}"
    answer = Commit

    revision: str
    via: str | None = None


class GetChanges(Call[tuple[Difference, ...]], frozen=True, kw_only=True):
    """What a commit changed, compared with its first parent; the next page is ``after`` the last key."""

    path = "/commits/{revision}/changes"
    answer = tuple[Difference, ...]

    revision: str
    via: str | None = None
    after: Key | None = None
    limit: int | None = 100


class ListCommits(Call[tuple[Commit, ...]], frozen=True, kw_only=True):
    """Commits, newest first, that match everything given."""

    path = "/log"
    answer = tuple[Commit, ...]

    ref: str | None = None
    via: str | None = None
    table: Key | None = None
    """Only those that changed this key, or something below it."""
    author: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    text: str | None = None
    """Only those whose message contains this, in any case."""
    after: str | None = None
    """Go on after this commit, the last one of the page before."""
    all_parents: bool = False
    """Also show what was merged."""
    limit: int | None = 100


class Diff(Call[tuple[Difference, ...]], frozen=True, kw_only=True):
    """What differs between two revisions, by key; the next page is ``after`` the last key."""

    path = "/diff"
    answer = tuple[Difference, ...]

    before: str
    to: str
    prefix: Key | None = None
    after: Key | None = None
    limit: int | None = 100


class Compare(Call[Comparison], frozen=True, kw_only=True):
    """How two revisions are related: their common ancestor, and how many commits only one of them has."""

    path = "/compare"
    answer = Comparison

    one: str
    other: str


class GetOutcome(Call[Landing | None], frozen=True, kw_only=True):
    """What the request with an idempotency key came to; nothing if it was not applied."""

    path = "/outcomes/{key}"
    answer = Landing | None

    key: str
    branch: str | None = None
    """The branch or tag that the request was about."""


# -- writing -----------------------------------------------------------------------------------------------


class CommitOperations(Write[Commit], frozen=True, kw_only=True):
    """Carry out operations on a branch, all or none."""

    path = "/commits"
    answer = Commit

    operations: tuple[Operation, ...]
    branch: str | None = None
    said: Said = Said()
    base: str | None = None
    """The commit that was read: every key must still hold what it held there."""
    expected_head: str | None = None
    """Refuse it unless the branch is at this commit."""
    incarnation: ObjectId | None = None
    """Refuse a branch that was deleted and created anew."""
    create_namespaces: bool = False


class Bring(Write[MergeResult], frozen=True, kw_only=True):
    """A call that brings changes from elsewhere to a branch."""

    answer = MergeResult

    keys: dict[str, KeyMerge] = {}
    """How to treat single keys, which are written as text."""
    default: MergeMode = MergeMode.NORMAL
    expected_head: str | None = None
    dry_run: bool = False


class Merge(Bring, frozen=True, kw_only=True):
    """Bring what a branch, tag or commit has and another branch has not."""

    path = "/merge"

    source: str
    into: str | None = None
    said: Said = Said()


class Transplant(Bring, frozen=True, kw_only=True):
    """Repeat commits on a branch, each as a commit of its own, all by one swap."""

    path = "/transplant"

    commits: tuple[str, ...]
    """Revisions, oldest first, or one range such as ``dev~3..dev`` (without its start)."""
    onto: str | None = None
    said: Said = Said()


class Revert(Bring, frozen=True, kw_only=True):
    """Undo on a branch what one of its commits did, by a new commit."""

    path = "/revert"

    commit: str
    on: str | None = None
    said: Said = Said()


class Rebase(Bring, frozen=True, kw_only=True):
    """Repeat a branch's own commits on top of another revision, and move the branch there."""

    path = "/rebase"

    branch: str
    onto: str | None = None


CALLS: Final[tuple[type[Call[Any]], ...]] = (
    GetAbout,
    ChangeRoots,
    GetSetting,
    PutSetting,
    KeepHistory,
    Sweep,
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
)
"""All of them."""
