"""Doubt: what to answer for a call whose first answer was lost, when its repetition is refused.

A repetition under the same key is answered like the first try, if the lake still has what it names. If not,
such as when the branch that was merged is gone, the lake is asked about the key. What is known to have been
applied is answered as such, with as much of the answer as can still be told.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

import msgspec

from penstock.errors import (
    ConflictError,
    InvalidKey,
    InvalidName,
    InvalidRequest,
    JobOver,
    MethodNotAllowed,
    OutcomeUnknown,
    PenstockError,
    RequestError,
    TokenNotFound,
    TooLarge,
    UnsupportedMediaType,
)
from penstock.lake.answers import About, Landing
from penstock.lake.calls import (
    AssignReference,
    Bring,
    Call,
    ChangeRoots,
    CommitOperations,
    CreateReference,
    DeleteReference,
    GetAbout,
    GetCommit,
    GetReference,
    ListReferences,
    ListTokens,
    Rebase,
    RevokeToken,
    Transplant,
    Write,
)
from penstock.lake.delta_answers import Ratified, TableMade
from penstock.lake.delta_calls import AdoptTable, CommitTables, CreateTable, ReleaseTable
from penstock.lake.delta_outcomes import made, ratified
from penstock.lake.files.answers import FilesWritten
from penstock.lake.files.calls import WriteFiles
from penstock.model.commits import Commit
from penstock.model.encoding import NO_COMMIT
from penstock.model.merges import MergeResult
from penstock.model.references import Kind, Reference
from penstock.storage.locations import normalise

Ask: TypeAlias = Callable[[Call[Any]], Any]

_HOLDS_FOR_EVERY_TRY: Final = (InvalidKey, InvalidName, MethodNotAllowed, TooLarge, UnsupportedMediaType)
"""Refusals that say what is wrong with the request itself."""

_COMMIT: Final = re.compile("[0-9a-f]{64}")


def target_of(call: Write[Any]) -> str | None:
    """The reference that a write is about; ``None`` for the default branch."""
    name: str | None = getattr(call, call.target)
    return name


def holds_for_every_try(call: Write[Any], error: PenstockError) -> bool:
    """Whether no earlier try of a call can escape what a later one was refused for, wherever it is by now.

    A conflict was decided by the branch's queue, which would decide an earlier try alike, unless that began
    with other commits: a name may have led elsewhere when it was looked up.
    """
    if isinstance(error, JobOver):
        return False  # the job's row says so: an earlier try may have been past it, on its way to the queue
    if isinstance(error, ConflictError):
        return all(_COMMIT.fullmatch(one) for one in _revisions(call))
    return isinstance(error, _HOLDS_FOR_EVERY_TRY)


def _revisions(call: Write[Any]) -> Iterator[str]:
    """The revisions that decide what a write comes to."""
    if isinstance(call, WriteFiles):
        yield from (one.at or "" for one in call.copied)
        return
    for field in ("at", "to", "expected", "base", "if_head", "source", "commit"):
        if (revision := getattr(call, field, None)) is not None:
            yield revision
    if isinstance(call, Transplant):
        yield from call.commits
    if isinstance(call, Rebase):
        yield call.onto or ""  # the default branch, which moves


def applied(ask: Ask, call: Write[Any], landing: Landing) -> Any:
    """The answer of a write that is known to have been applied."""
    if isinstance(call, CommitOperations):
        return landing.commit or _commit(ask, call, landing.head)
    if isinstance(call, Bring):
        return MergeResult(commits=landing.commits, head=landing.head, applied=True)
    if isinstance(call, WriteFiles):
        return FilesWritten(commit=landing.commit or _commit(ask, call, landing.head), head=landing.head)
    if isinstance(call, CommitTables | CreateTable | AdoptTable | ReleaseTable):
        return _tables(ask, call, landing)
    assert isinstance(call, CreateReference | AssignReference | DeleteReference)
    return _reference(ask, call, bytes.fromhex(landing.head))


def _tables(
    ask: Ask, call: CommitTables | CreateTable | AdoptTable | ReleaseTable, landing: Landing
) -> Ratified | TableMade:
    """What became of tables. Raises as ``_commit``: any other error would be taken for a refusal."""
    try:
        branch = _branch(ask, call)
        if isinstance(call, CommitTables):
            return ratified(ask, call.tables, landing, branch)
        return made(ask, call.key, landing, branch)
    except PenstockError as problem:
        raise _unreadable(call, landing.head, problem) from None


def _branch(ask: Ask, call: Write[Any]) -> str:
    """The branch that a write is about, by its name."""
    name = target_of(call)
    if name is None:
        about: About = ask(GetAbout())
        name = about.default_branch
    return name


def _commit(ask: Ask, call: CommitOperations | WriteFiles, head: str) -> Commit:
    """The commit that was made.

    Who may read only some keys, and only its branch, cannot read it once that is gone or elsewhere. No commit
    is made up then: ``OutcomeUnknown`` says that it was applied, and its ``details["commit"]`` is the id.
    """
    try:
        found: Commit = ask(GetCommit(revision=head, via=_branch(ask, call)))
    except PenstockError as problem:
        raise _unreadable(call, head, problem) from None
    return found


def _unreadable(call: Write[Any], head: str, problem: PenstockError) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"the request was applied as commit {head}, which cannot be read now: {problem.message}",
        commit=head,
        **_request(call),
    )


def _reference(ask: Ask, call: CreateReference | AssignReference | DeleteReference, head: bytes) -> Reference:
    """A reference as the call left it.

    Others may have moved, deleted or created it since. Its name, kind and head are those of the call; all
    else that it says is of what has its name now.
    """
    found = _found(ask, call)
    kind = call.kind or (found.was or found.kind if found is not None else Kind.BRANCH)
    if found is None:
        found = Reference(kind=kind, name=call.name, incarnation=b"", log=NO_COMMIT, position=0, created_us=0)
    if isinstance(call, DeleteReference):
        return msgspec.structs.replace(found, kind=Kind.DELETED, was=kind, head=head)
    return msgspec.structs.replace(found, kind=kind, was=None, head=head)


def _found(ask: Ask, call: CreateReference | AssignReference | DeleteReference) -> Reference | None:
    """The reference of a call, or what is left of it; ``None`` if there is nothing that can be read."""
    left = ListReferences(kind=Kind.DELETED, prefix=call.name, limit=1)
    ways: list[Call[Any]] = [GetReference(name=call.name), left]
    for way in ways[::-1] if isinstance(call, DeleteReference) else ways:
        try:
            found = ask(way)
        except PenstockError:
            continue  # that the call was applied is known all the same
        for one in found if isinstance(found, tuple) else (found,):
            if one.name == call.name:
                reference: Reference = one
                return reference
    return None


def seen_before(ask: Ask, call: Call[Any]) -> Any:
    """What no repetition of a call could tell any more; ``None`` for most."""
    if not isinstance(call, RevokeToken):
        return None
    try:
        return next((one for one in ask(ListTokens()) if one.id == call.id), None)
    except RequestError:
        return None  # the call itself will say what is wrong


def done_already(ask: Ask, call: Call[Any], error: PenstockError, seen: Any) -> Any:
    """The answer of a call without a key that was refused because all is as it wants it to be.

    Raises the error if that is not so. ``seen`` is what ``seen_before`` gave.
    """
    if isinstance(call, RevokeToken) and isinstance(error, TokenNotFound) and seen is not None:
        return seen
    if isinstance(call, ChangeRoots) and isinstance(error, InvalidRequest):
        try:
            about = ask(GetAbout())
        except PenstockError:
            raise error from None
        roots = set(about.roots)
        if roots.issuperset(map(normalise, call.add)) and roots.isdisjoint(map(normalise, call.remove)):
            return about
    raise error


def unknown(call: Call[Any], why: PenstockError) -> OutcomeUnknown:
    """What to raise if it cannot be found out. Its details are what `penstock outcome` asks for."""
    reason = why.message.partition("\n")[0].partition("; ")[0].rstrip(".")
    if isinstance(call, Write):
        doubt = f"whether request {call.idempotency_key} was applied; repeating it with that key is safe"
        error = OutcomeUnknown(f"{reason}, so it is not known {doubt}", **_request(call))
    else:
        doubt = "whether it was done; doing it again does no harm"
        error = OutcomeUnknown(f"{reason}, so it is not known {doubt}", key="")
    error.request_id = why.request_id
    return error


def _request(call: Write[Any]) -> dict[str, str | None]:
    """How errors name a request: by its key, and the reference that it is about."""
    name = target_of(call)
    return {"key": call.idempotency_key, **({"name": name} if name is not None else {})}
