"""Doubt: finding out what came of a write whose answer was lost, when its repetition is refused.

A repetition under the same key is answered like the first try, if it still says the same. It may not: by now
``main`` names another commit, or the branch that was merged is gone. Then the lake is asked about the key.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from penstock.errors import OutcomeUnknown, PenstockError
from penstock.lake.calls import (
    AssignReference,
    Bring,
    Call,
    CommitOperations,
    CreateReference,
    DeleteReference,
    GetCommit,
    GetOutcome,
    GetReference,
    ListReferences,
    Merge,
    Rebase,
    Revert,
    Transplant,
    Write,
)
from penstock.model.merges import MergeResult
from penstock.model.references import Kind

_TARGETS: Final[dict[type[Write[Any]], str]] = {
    CreateReference: "name",
    AssignReference: "name",
    DeleteReference: "name",
    CommitOperations: "branch",
    Merge: "into",
    Transplant: "onto",
    Revert: "on",
    Rebase: "branch",
}
"""The field that says which reference a write is about."""


def target_of(call: Write[Any]) -> str | None:
    """The reference that a write is about; ``None`` for the default branch."""
    name: str | None = getattr(call, _TARGETS[type(call)])
    return name


def found_out(do: Callable[[Call[Any]], Any], call: Write[Any], error: PenstockError) -> Any:
    """The answer of a write that was carried out, though its repetition met an error.

    Raises the error if it was not carried out.
    """
    name = target_of(call)
    assert call.idempotency_key is not None
    landing = do(GetOutcome(key=call.idempotency_key, branch=name))
    if landing is None:
        raise error
    if isinstance(call, CommitOperations):
        return do(GetCommit(revision=landing.head, via=name))
    if isinstance(call, Bring):
        return MergeResult(commits=landing.commits, head=landing.head, applied=True)
    assert name is not None
    if not isinstance(call, DeleteReference):
        return do(GetReference(name=name))
    for one in do(ListReferences(kind=Kind.DELETED, prefix=name, limit=1)):
        if one.name == name:
            return one
    raise OutcomeUnknown(f"'{name}' was deleted, but exists again", key=call.idempotency_key)


def unknown(call: Call[Any], why: PenstockError) -> OutcomeUnknown:
    """What to raise if it cannot be found out."""
    key = getattr(call, "idempotency_key", None)
    if not isinstance(call, Write) or key is None:
        return OutcomeUnknown(f"{why}. Whether it was done is not known: look, or do it again", key="")
    name = target_of(call)
    where = f" --branch {name}" if name is not None else ""
    return OutcomeUnknown(
        f"{why}. Whether the request was applied is not known: repeat it with idempotency key {key}, or look "
        f"it up with 'penstock outcome {key}{where}'",
        key=key,
    )
