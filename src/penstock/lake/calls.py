"""Calls: everything that can be asked of a lake, one frozen value for each.

A program holds a ``Lake``; the lake makes calls and hands them to its catalogue, which answers them from a
kernel in this process or passes them to a server. So the embedded lake, the remote client, the native HTTP
API and the check of who may do what cannot differ in what there is to ask: it is this list.

Over HTTP a call is ``method`` and ``path``. Fields that the path names are in it; ``idempotency_key`` is the
header ``Idempotency-Key``; the others are the query of a ``GET`` or ``DELETE``, else the JSON body.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, ClassVar, Final

import msgspec

from penstock.errors import InvalidRequest, PenstockError, RequestError, TokenNotFound
from penstock.kernel.fsck import CheckResult
from penstock.kernel.sweep import SweepResult
from penstock.lake import resync_calls
from penstock.lake.answers import About, ErasedTable, LandedRequest, SweptTable
from penstock.lake.audits import calls as audit_calls
from penstock.lake.call import (
    PAGE_MAX,
    Ask,
    Call,
    CommitDescription,
    ReadAt,
    RetrySafety,
    WriteCall,
    describe_commit,
    find_retry_safety,
)
from penstock.lake.plugins import list_plugin_types
from penstock.lake.read_calls import (
    Compare,
    CountRequests,
    Diff,
    FigureKind,
    FindToken,
    GetAbout,
    GetChanges,
    GetCommit,
    GetContents,
    GetFigures,
    GetOutcome,
    GetReference,
    GetReferenceLog,
    GetSetting,
    ListCommits,
    ListEntries,
    ListReferences,
    ListTokens,
    Resolve,
    SearchLog,
)
from penstock.lake.recovered_answers import find_reference_after_write, landed_commit
from penstock.lake.transactions import calls as transaction_calls
from penstock.model.commits import Commit
from penstock.model.content import encode_content
from penstock.model.encoding import ObjectId
from penstock.model.keys import Key
from penstock.model.merges import KeyMerge, MergeMode, MergeResult
from penstock.model.names import check_name
from penstock.model.operations import Change, Operation, Put
from penstock.model.references import Kind, Reference
from penstock.model.tokens import Grant, Token
from penstock.storage.locations import normalise_location

__all__ = [
    "CALLS",
    "PAGE_MAX",
    "Ask",
    "Call",
    "CommitDescription",
    "Compare",
    "CountRequests",
    "Diff",
    "FigureKind",
    "FindToken",
    "GetAbout",
    "GetChanges",
    "GetCommit",
    "GetContents",
    "GetFigures",
    "GetOutcome",
    "GetReference",
    "GetReferenceLog",
    "GetSetting",
    "ListCommits",
    "ListEntries",
    "ListReferences",
    "ListTokens",
    "ReadAt",
    "Resolve",
    "RetrySafety",
    "SearchLog",
    "WriteCall",
    "describe_commit",
    "find_retry_safety",
]
"""Beside the calls that are defined here: what all share, from ``call``, and the reads of ``read_calls``."""

# -- the lake itself ---------------------------------------------------------------------------------------


class ChangeRoots(Call[About], frozen=True, kw_only=True):
    """Add places where tables may be, or take some back. Tables that are there already stay."""

    method = "POST"
    path = "/roots"
    answer = About
    retry = RetrySafety.SAFE
    makes_lake = True
    counted = ()
    location_fields = ("add", "remove")

    add: tuple[str, ...] = ()
    """Locations, such as `s3://bucket/tables`."""
    remove: tuple[str, ...] = ()
    """Roots that were added before."""

    def adds_anything(self) -> bool:
        return bool(self.add)

    def answer_if_done_before(self, ask: Ask, refused: PenstockError, seen: Any) -> About:  # noqa: ARG002
        """What is no root any more cannot be removed again."""
        if not isinstance(refused, InvalidRequest):
            raise refused
        about: About = ask(GetAbout())
        roots = set(about.roots)
        if roots.issuperset(map(normalise_location, self.add)) and roots.isdisjoint(
            map(normalise_location, self.remove)
        ):
            return about
        raise refused


class PutSetting(Call[str | None], frozen=True, kw_only=True):
    """Set or remove a setting of the lake; answers its former value.

    A lake has at most 100 settings of at most 16,384 characters each, and at most 256 KiB of settings, roots
    and rules of history together.
    """

    method = "PUT"
    path = "/settings/{name}"
    answer = str | None
    retry = RetrySafety.ONCE  # a repetition would not know what was there before
    makes_lake = True

    name: str
    value: str | None = None
    """`null` removes the setting."""

    def adds_anything(self) -> bool:
        return self.value is not None


class KeepHistory(Call[None], frozen=True, kw_only=True):
    """Set how much history is kept: a number of commits, and all younger ones. Without limits, all of it."""

    method = "PUT"
    path = "/history-rules"
    answer = None
    retry = RetrySafety.SAFE
    makes_lake = True

    pattern: str = "*"
    """A pattern of names of references, such as ``dev/*``."""
    max_commits: int | None = None
    """This many commits from the head on stay, whatever their age."""
    max_days: float | None = None
    """Commits that are younger than this many days stay, however many they are."""


class SetGrace(Call[About], frozen=True, kw_only=True):
    """Set the grace periods: how long sweeps keep unreferenced objects and files. Answers the lake's
    description.

    A shorter period holds for writers at once, and for sweeps when those who relied on the longer one are
    done. A lake with periods of its own cannot be opened by a Penstock that does not know of them.
    """

    method = "PUT"
    path = "/grace"
    answer = About
    retry = RetrySafety.SAFE
    makes_lake = False

    grace_s: float | None = None
    """In seconds, for objects that no reference leads to: 3600 or more. Unchanged if left out."""
    data_grace_days: float | None = None
    """In days, for data files that no commit references: 4 or more. Unchanged if left out."""


class Sweep(Call[SweepResult], frozen=True, kw_only=True):
    """Remove objects that nothing leads to any more and that are older than the grace period."""

    method = "POST"
    path = "/sweep"
    answer = SweepResult
    retry = RetrySafety.ONCE  # it answers what it removed
    makes_lake = False
    is_long = True
    goes_on = True

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
    retry = RetrySafety.ONCE  # it answers what it removed
    makes_lake = False
    is_long = True
    goes_on = True
    location_fields = ("after",)

    key: Key | None = None
    """Only the table at this key."""
    remove_data: bool = False
    """Remove data files too."""
    dry_run: bool = False
    """Remove nothing at all, and only count."""
    after: str = ""
    """Go on after this location, the last one of the page before."""
    limit: int | None = 100
    """At most this many tables."""


class EraseTable(Call[ErasedTable], frozen=True, kw_only=True):
    """Make deleted rows of a table unrecoverable, and end its history before now.

    Rewrites data files that hold deleted rows beside others, commits a version from which on the table's
    history exists, and removes what only earlier versions need: data files, change data, log entries,
    checkpoints, objects of the lake. What writers rely on for a grace period stays until that is over: then
    the answer says until when, and the same call goes on. A 409 of the code `erase_refused` lists branches,
    tags, transactions and forks that still hold rows.
    """

    method = "POST"
    path = "/erase"
    answer = ErasedTable
    retry = RetrySafety.SAFE  # one that has ended is answered as it was
    makes_lake = False
    is_long = True
    goes_on = True

    key: Key
    all_references: bool = False
    """Also remove the table's earlier history at tags, and at branches that did not change it: it can no
    longer be read there. Without this, the erase is refused while one of them has the table."""
    dropped: bool = False
    """Erase the tables that were dropped at the key, completely, with their files, whatever is at the key
    now."""
    older_than: datetime | None = None
    """Only what was deleted before this moment: later history of the table stays. Without it, all that was
    deleted until now."""
    dry_run: bool = False
    """Change nothing; only report what would happen."""
    who: str = ""
    """Who acts. A server puts the name of the caller's token here, if there is one."""


class Fsck(Call[CheckResult], frozen=True, kw_only=True):
    """Check every reachable object's hash, order and shape."""

    method = "POST"
    path = "/fsck"
    answer = CheckResult
    retry = RetrySafety.READ
    makes_lake = False
    is_long = True


# -- tokens ------------------------------------------------------------------------------------------------


class PutToken(Call[Token], frozen=True, kw_only=True):
    """Register a token. The caller keeps the secret; the lake gets its hash only.

    The same token sent again is answered; another one under the same id is refused. So is one with the name
    of another token, which would be the same writer, unless it is to replace that one.
    """

    method = "PUT"
    path = "/tokens/{id}"
    answer = Token
    retry = RetrySafety.SAFE
    makes_lake = True
    counted = ()

    id: str
    """12 hexadecimal digits, the part of the token before its secret."""
    name: str
    """The name of its user, which commits record as their author."""
    secret_hash: ObjectId
    """SHA-256 of the secret."""
    grants: tuple[Grant, ...]
    """What it allows: the sum of these grants."""
    expires: datetime | None = None
    """When it expires; never if left out."""
    replaces: str | None = None
    """The id of a token of the same name that this one takes over from. Both can be used until that is
    revoked, and are one writer: they have the same transactions and idempotency keys."""


class RevokeToken(Call[Token], frozen=True, kw_only=True):
    """Revoke a token."""

    method = "DELETE"
    path = "/tokens/{id}"
    answer = Token
    retry = RetrySafety.SAFE
    makes_lake = False

    id: str

    def look_up_before(self, ask: Ask) -> Token | None:
        try:
            return next((token for token in ask(ListTokens()) if token.id == self.id), None)
        except RequestError:
            return None  # the call itself will say what is wrong

    def answer_if_done_before(self, ask: Ask, refused: PenstockError, seen: Token | None) -> Token:  # noqa: ARG002
        if seen is None or not isinstance(refused, TokenNotFound):
            raise refused
        return seen


# -- references --------------------------------------------------------------------------------------------


class CreateReference(WriteCall[Reference], frozen=True, kw_only=True):
    """Create a branch or tag."""

    path = "/references"
    target = "name"
    moves = True
    answer = Reference
    makes_lake = True
    unhashed = ()
    revisions = ("at",)

    name: str
    kind: Kind = Kind.BRANCH
    at: str | None = None
    """The revision to point it to; the default branch's head if left out."""

    def check_sendable(self) -> None:
        check_name(self.name)

    def recover(self, ask: Ask, landing: LandedRequest) -> Reference:
        return find_reference_after_write(ask, self.name, self.kind, landing)


class AssignReference(WriteCall[Reference], frozen=True, kw_only=True):
    """Move a branch or tag to another commit."""

    method = "PUT"
    path = "/references/{name}"
    target = "name"
    moves = True
    answer = Reference
    makes_lake = False
    unhashed = ()
    revisions = ("to", "expected")

    name: str
    to: str
    """The revision to move it to."""
    kind: Kind | None = None
    """Refuse it if the reference is of another kind."""
    expected: str | None = None
    """Refuse it unless the reference is at this commit."""

    def check_sendable(self) -> None:
        check_name(self.name)

    def recover(self, ask: Ask, landing: LandedRequest) -> Reference:
        return find_reference_after_write(ask, self.name, self.kind, landing)


class DeleteReference(WriteCall[Reference], frozen=True, kw_only=True):
    """Delete a branch or tag; its log can still be read for a while. Answers what it was."""

    method = "DELETE"
    path = "/references/{name}"
    target = "name"
    moves = True
    answer = Reference
    makes_lake = False
    unhashed = ()
    revisions = ("expected",)

    name: str
    kind: Kind | None = None
    """Refuse it if the reference is of another kind."""
    expected: str | None = None
    """Refuse it unless the reference is at this commit."""

    def check_sendable(self) -> None:
        check_name(self.name)

    def recover(self, ask: Ask, landing: LandedRequest) -> Reference:
        return find_reference_after_write(ask, self.name, self.kind, landing, is_deleted=True)


# -- writing -----------------------------------------------------------------------------------------------


class CommitOperations(WriteCall[Commit], frozen=True, kw_only=True):
    """Carry out operations on a branch, all or none."""

    path = "/commits"
    target = "branch"
    answer = Commit
    makes_lake = True
    counted = ("operations",)
    unhashed = ("branch",)
    revisions = ("base", "if_head")

    operations: tuple[Operation, ...]
    """What to do. No key twice, except to delete it and put it again."""
    branch: str | None = None
    """The default branch if nothing is given."""
    said: CommitDescription = CommitDescription()
    """Message, authors and properties of the commit."""
    base: str | None = None
    """The commit that was read: every key must still hold what it held there."""
    if_head: str | None = None
    """Refuse it unless the branch is at this commit."""
    incarnation: ObjectId | None = None
    """Refuse a branch that was deleted and created again."""
    create_namespaces: bool = False
    """Create missing namespaces above the keys that are put."""

    def adds_anything(self) -> bool:
        return any(isinstance(operation, Put | Change) for operation in self.operations)

    def check_sendable(self) -> None:
        for operation in self.operations:
            if isinstance(operation, Put):
                encode_content(operation.content)

    def recover(self, ask: Ask, landing: LandedRequest) -> Commit:
        return landed_commit(ask, self, landing)


class MergeCall(WriteCall[MergeResult], frozen=True, kw_only=True):
    """A call that brings changes from elsewhere to a branch."""

    answer = MergeResult
    makes_lake = False
    counted: ClassVar[tuple[str, ...]] = ("keys",)

    keys: dict[str, KeyMerge] = msgspec.field(default_factory=dict)
    """How to treat single keys, which are written as text."""
    default: MergeMode = MergeMode.NORMAL
    """How to treat all other keys."""
    if_head: str | None = None
    """Refuse it unless the branch is at this commit."""
    dry_run: bool = False
    """Change nothing; only report what would be done, and the conflicts."""

    def check_sendable(self) -> None:
        for how in self.keys.values():
            if how.content is not None:
                encode_content(how.content)

    def recover(self, ask: Ask, landing: LandedRequest) -> MergeResult:  # noqa: ARG002
        return recover_merge_result(landing)


def recover_merge_result(landing: LandedRequest) -> MergeResult:
    """What is known of a merge, or the like, of which only is known that it landed."""
    return MergeResult(commits=landing.commits, head=landing.head, applied=True)


class Merge(MergeCall, frozen=True, kw_only=True):
    """Merge a branch, tag or commit into another branch."""

    path = "/merge"
    target = "into"
    unhashed = ("into",)
    revisions = ("if_head", "source")

    source: str
    """A branch, tag or other revision."""
    into: str | None = None
    """The branch that changes; the default one if nothing is given."""
    said: CommitDescription = CommitDescription()
    """Message, authors and properties of the merge commit."""


class Transplant(MergeCall, frozen=True, kw_only=True):
    """Transplant (cherry-pick) commits to a branch, each as its own commit, all at once."""

    path = "/transplant"
    target = "onto"
    counted = ("commits", "keys")
    unhashed = ("onto",)
    revisions = ("if_head",)

    commits: tuple[str, ...]
    """Revisions, oldest first, or one range such as ``dev~3..dev`` (without its start)."""
    onto: str | None = None
    """The branch that changes; the default one if nothing is given."""
    said: CommitDescription = CommitDescription()
    """A message for a single commit; several keep theirs."""

    def list_named_revisions(self) -> Iterator[str]:
        yield from super().list_named_revisions()
        yield from self.commits


class Revert(MergeCall, frozen=True, kw_only=True):
    """Revert a commit on a branch, by a new commit."""

    path = "/revert"
    target = "on"
    unhashed = ("on",)
    revisions = ("if_head", "commit")

    commit: str
    """The revision to undo."""
    on: str | None = None
    """The branch that changes; the default one if nothing is given."""
    said: CommitDescription = CommitDescription()
    """Message, authors and properties of the new commit."""


class Restore(WriteCall[MergeResult], frozen=True, kw_only=True):
    """Restore tables of a branch to their state at an earlier commit, by one new commit.

    Exactly one of `keys`, `namespace` and `all` says what, and one of `to` and `version` says when.
    """

    path = "/restore"
    answer = MergeResult
    makes_lake = False
    target = "branch"
    counted = ("keys", "leave")
    unhashed = ("branch",)
    revisions = ("if_head", "to")

    keys: tuple[Key, ...] = ()
    """These tables. One that was dropped since comes back."""
    namespace: Key | None = None
    """A namespace and everything below it: what was created there since is dropped."""
    all: bool = False
    """Every table and namespace: what was created since is dropped."""
    leave: tuple[Key, ...] = ()
    """With `namespace` or `all`: what stays as it is, each with everything below it."""
    to: str | None = None
    """The revision whose state is wanted, such as `main~3` or `main*2026-11-14T06:00:00Z`."""
    version: int | None = None
    """A version of the one table that `keys` names, Delta's or Lance's, as the branch has it."""
    branch: str | None = None
    """The branch that changes; the default one if nothing is given."""
    said: CommitDescription = CommitDescription()
    """Message, authors and properties of the new commit."""
    if_head: str | None = None
    """Refuse it unless the branch is at this commit. Without this, the restore also replaces what was
    committed since."""
    dry_run: bool = False
    """Change nothing; only report what would be done to each table, and the conflicts."""

    def recover(self, ask: Ask, landing: LandedRequest) -> MergeResult:  # noqa: ARG002
        return recover_merge_result(landing)


class Rebase(MergeCall, frozen=True, kw_only=True):
    """Rebase a branch: repeat its own commits on top of another revision, and move the branch there."""

    path = "/rebase"
    target = "branch"
    moves = True
    unhashed = ()
    revisions = ("if_head",)

    branch: str
    """The branch that moves."""
    onto: str | None = None
    """The revision to build on; the default branch if nothing is given."""

    def list_named_revisions(self) -> Iterator[str]:
        yield from super().list_named_revisions()
        yield self.onto or ""  # the default branch, which moves


CALLS: Final[tuple[type[Call[Any]], ...]] = (
    GetAbout,
    ChangeRoots,
    GetSetting,
    PutSetting,
    KeepHistory,
    SetGrace,
    Sweep,
    SweepTables,
    EraseTable,
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
    SearchLog,
    Diff,
    Compare,
    GetFigures,
    GetOutcome,
    CommitOperations,
    Merge,
    Transplant,
    Revert,
    Restore,
    Rebase,
    *(kind for plugin in list_plugin_types() for kind in plugin.calls),
    *resync_calls.CALLS,
    *transaction_calls.CALLS,
    *audit_calls.CALLS,
)
"""All of them."""
