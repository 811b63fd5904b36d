"""What a write is answered with that is known to have landed: found out by reads of the lake as it is.

So the answer to a repeated request is the one that its sender missed, wherever it is put together: in the
lake, if a name in the request leads nowhere by now, or by a client that heard nothing but that it landed.
"""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.errors import PenstockError
from penstock.lake.answers import About, LandedRequest
from penstock.lake.call import Ask, Call, WriteCall
from penstock.lake.read_calls import GetAbout, GetCommit, GetReference, ListReferences
from penstock.model.commits import Commit
from penstock.model.encoding import NO_COMMIT
from penstock.model.references import Kind, Reference


def get_branch(ask: Ask, call: WriteCall[Any]) -> str:
    """The branch that a write is about, by its name."""
    name = call.target_name
    if name is None:
        about: About = ask(GetAbout())
        name = about.default_branch
    return name


def landed_commit(ask: Ask, call: WriteCall[Any], landing: LandedRequest) -> Commit:
    """The commit that a write has made."""
    commit: Commit = landing.commit or ask(GetCommit(revision=landing.head, via=get_branch(ask, call)))
    return commit


def find_reference_after_write(
    ask: Ask, name: str, kind: Kind | None, landing: LandedRequest, *, is_deleted: bool = False
) -> Reference:
    """A reference as a write left it.

    Others may have moved, deleted or created it since. Its name, kind and head are those of the write; all
    else that it says is of what has its name now.
    """
    reference = _find_reference(ask, name, is_deleted=is_deleted)
    if reference is None:
        reference = Reference(
            kind=Kind.BRANCH, name=name, incarnation=b"", log=NO_COMMIT, position=0, created_us=0
        )
    if kind is not None:
        reference = msgspec.structs.replace(reference, kind=kind, was=None)
    reference = msgspec.structs.replace(reference, head=bytes.fromhex(landing.head))
    return make_reference_as_written(reference, is_deleted=is_deleted)


def make_reference_as_written(reference: Reference, *, is_deleted: bool = False) -> Reference:
    """A reference as a write left it, though others deleted or made it anew since."""
    kind = reference.was or reference.kind
    if is_deleted:
        return msgspec.structs.replace(reference, kind=Kind.DELETED, was=kind)
    return msgspec.structs.replace(reference, kind=kind, was=None)


def _find_reference(ask: Ask, name: str, *, is_deleted: bool) -> Reference | None:
    """The reference of a name, or what is left of it; ``None`` if there is nothing that can be read."""
    ways: list[Call[Any]] = [
        GetReference(name=name),
        ListReferences(kind=Kind.DELETED, prefix=name, limit=1),
    ]
    for way in ways[::-1] if is_deleted else ways:
        try:
            answer = ask(way)
        except PenstockError:
            continue  # that the write has landed is known all the same
        for reference in answer if isinstance(answer, tuple) else (answer,):
            if reference.name == name:
                found_reference: Reference = reference
                return found_reference
    return None
