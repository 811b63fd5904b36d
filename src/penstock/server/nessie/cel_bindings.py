"""Items: what a filter sees of a reference, a commit, an entry or a difference.

The names are Nessie's, so that filters written for it mean the same here. A value is only made of the fields
that the expression mentions: handing them over costs more than the evaluation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec

from penstock.model.commits import Commit
from penstock.model.keys import Key
from penstock.server.nessie.cel_tokens import ValueSizes
from penstock.server.nessie.keys import quote_key, write_separated_key

FilterKind: TypeAlias = Literal["references", "commits", "entries", "diff"]
Fields: TypeAlias = Mapping[str, Callable[[Any], Any]]
"""The fields of a value, and how each is made."""


class KeyFacts(msgspec.Struct, frozen=True, gc=False):
    """A key of an entry, an operation or a difference."""

    key: Key
    content_type: str = ""
    """As Nessie names it; empty where nothing is held."""
    content_id: str = ""
    operation: str = ""
    """``PUT`` or ``DELETE``."""


class ReferencePosition(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a reference beyond its name and commit."""

    commit: Commit | None = None
    """Its newest commit; none if it is empty, or was not asked for."""
    ahead: int | None = None
    behind: int | None = None
    ancestor: str | None = None
    total: int | None = None


class NamedReferenceFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A branch or tag."""

    name: str
    commit_id: str
    head: ReferencePosition | None = None


def bind_reference(
    type_name: str, name: str, commit_id: str, head: ReferencePosition | None = None
) -> Mapping[str, Any]:
    """A branch or tag. ``type_name`` is ``BRANCH`` or ``TAG``."""
    known_head = head or ReferencePosition()
    return {
        "ref": NamedReferenceFacts(name=name, commit_id=commit_id, head=head),
        "refType": type_name,
        "refMeta": known_head,
        "commit": known_head.commit,
    }


def bind_commit(commit: Commit, operations: Sequence[KeyFacts] = ()) -> Mapping[str, Any]:
    """A commit, and what it changed if that was asked for."""
    return {"commit": commit, "operations": operations}


def bind_entry(key: Key, content_type: str) -> Mapping[str, Any]:
    """A key and what it holds."""
    return {"entry": KeyFacts(key, content_type)}


def bind_difference(key: Key) -> Mapping[str, Any]:
    """A key that differs."""
    return {"key": KeyFacts(key)}


def select_mentioned_fields(value: Any, expression: str) -> Any:
    """A value as plain texts, numbers, lists and maps, with those of its fields that the expression names."""
    if isinstance(value, str):
        return value
    if isinstance(value, tuple | list):
        return [select_mentioned_fields(element, expression) for element in value]
    fields = _FIELDS[type(value)]
    if isinstance(value, KeyFacts) and value.operation:
        fields = OPERATION
    return {name: make(value) for name, make in fields.items() if name in expression}


def measure_sizes(values: Mapping[str, Any]) -> ValueSizes:
    """How large values are that ``mentioned`` made."""
    lengths, elements = [1], [1]

    def measure_value(value: Any) -> int:
        if isinstance(value, str):
            return 1 + len(value) // 64
        if isinstance(value, list):
            parts = [measure_value(element) for element in value]
            elements.append(max(parts, default=1))
        elif isinstance(value, dict):
            parts = [measure_value(name) + measure_value(part) for name, part in value.items()]
        else:
            return 1
        lengths.append(len(parts))
        return 1 + sum(parts)

    sizes = {name: measure_value(value) for name, value in values.items()}
    return ValueSizes(values=sizes, longest=max(lengths), largest=max(elements))


def _write_namespace_name(key: Key) -> str:
    return write_separated_key(key.parents[-1]) if len(key) > 1 else ""


def _bind_commit_fields(commit: Commit | None) -> dict[str, Any]:
    return {name: make(commit) for name, make in _FIELDS[type(commit)].items()}


KEY: Final[Fields] = {
    "key": lambda it: quote_key(it.key),
    "encodedKey": lambda it: write_separated_key(it.key),
    "keyElements": lambda it: list(it.key),
    "namespace": lambda it: _write_namespace_name(it.key),
    "namespaceElements": lambda it: list(it.key[:-1]),
    "name": lambda it: it.key[-1],
}
ENTRY: Final[Fields] = {**KEY, "contentType": lambda it: it.content_type}
OPERATION: Final[Fields] = {
    **KEY,
    "type": lambda it: it.operation,
    "content": lambda it: {"type": it.content_type, "id": it.content_id} if it.content_type else None,
}
COMMIT: Final[Fields] = {
    "hash": lambda it: it.id,
    "committer": lambda it: it.committer,
    "author": lambda it: it.author,
    "authors": lambda it: list(it.authors),
    "signedOffBy": lambda it: next(iter(it.signed_off_by), None),
    "allSignedOffBy": lambda it: list(it.signed_off_by),
    "message": lambda it: it.message,
    "commitTime": lambda it: it.time,
    "authorTime": lambda it: it.author_time,
    "properties": lambda it: {name: values[0] for name, values in it.properties.items() if values},
    "allProperties": lambda it: {name: list(values) for name, values in it.properties.items()},
    "parentCommitHashes": lambda it: list(it.parents),
}
NO_COMMIT: Final[Fields] = {
    **dict.fromkeys(COMMIT, lambda _: None),
    "message": lambda _: "",
    "authors": lambda _: [],
    "allSignedOffBy": lambda _: [],
    "properties": lambda _: {},
    "allProperties": lambda _: {},
    "parentCommitHashes": lambda _: [],
}
"""What an expression sees instead of a commit that is not there."""
HEAD: Final[Fields] = {
    "numCommitsAhead": lambda it: it.ahead,
    "numCommitsBehind": lambda it: it.behind,
    "commitMetaOfHEAD": lambda it: _bind_commit_fields(it.commit),
    "commonAncestorHash": lambda it: it.ancestor,
    "numTotalCommits": lambda it: it.total,
}
REFERENCE: Final[Fields] = {
    "name": lambda it: it.name,
    "hash": lambda it: it.commit_id,
    "metadata": lambda it: {name: make(it.head) for name, make in HEAD.items()} if it.head else None,
}
_FIELDS: Final[dict[type[Any], Fields]] = {
    KeyFacts: ENTRY,
    Commit: COMMIT,
    type(None): NO_COMMIT,
    ReferencePosition: HEAD,
    NamedReferenceFacts: REFERENCE,
}

VARIABLES: Final[dict[FilterKind, dict[str, Fields | None]]] = {
    "references": {"ref": REFERENCE, "refType": None, "refMeta": HEAD, "commit": COMMIT},
    "commits": {"commit": COMMIT, "operations": None},
    "entries": {"entry": ENTRY},
    "diff": {"key": KEY},
}
"""The variables of each kind of list and their fields, where they have some."""
