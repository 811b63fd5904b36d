"""Conflicts: comparing what a writer saw at a key with what is there now."""

from __future__ import annotations

from penstock.kernel.objects import Objects
from penstock.model.conflicts import Conflict, ConflictKind
from penstock.model.content import AnyContent, decode_content
from penstock.model.keys import Key
from penstock.model.objects import Value


def content_of(objects: Objects, value: Value | None) -> AnyContent | None:
    """The content behind a value."""
    return None if value is None else decode_content(objects.read(value))


def describe(content: AnyContent | None) -> str:
    """A content in a few words: its type, always first, where it is, and the beginning of its id."""
    if content is None:
        return ""
    place = getattr(content, "metadata_location", "") or getattr(content, "location", "")
    identity = f" [{str(content.id)[:8]}]" if content.id else ""
    return f"{content.type}{' ' + place if place else ''}{identity}"


def compare(key: Key, expected: AnyContent | None, content: AnyContent | None) -> Conflict:
    """The conflict between two different contents of a key."""
    if expected is None:
        kind = ConflictKind.KEY_EXISTS
    elif content is None:
        kind = ConflictKind.KEY_DOES_NOT_EXIST
    elif expected.type != content.type:
        kind = ConflictKind.PAYLOAD_DIFFERS
    elif expected.id != content.id:
        kind = ConflictKind.CONTENT_ID_DIFFERS
    else:
        kind = ConflictKind.VALUE_DIFFERS
    return Conflict(kind, key, describe(expected), describe(content))
