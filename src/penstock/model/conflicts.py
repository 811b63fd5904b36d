"""Conflicts: why a key of a request cannot be as its writer wanted it."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from penstock.model.keys import Key


class ConflictKind(StrEnum):
    """The kinds; the names are Nessie's where Nessie has one."""

    KEY_EXISTS = "KEY_EXISTS"
    KEY_DOES_NOT_EXIST = "KEY_DOES_NOT_EXIST"
    PAYLOAD_DIFFERS = "PAYLOAD_DIFFERS"
    CONTENT_ID_DIFFERS = "CONTENT_ID_DIFFERS"
    VALUE_DIFFERS = "VALUE_DIFFERS"
    NAMESPACE_ABSENT = "NAMESPACE_ABSENT"
    NOT_A_NAMESPACE = "NOT_A_NAMESPACE"
    NAMESPACE_NOT_EMPTY = "NAMESPACE_NOT_EMPTY"
    FORMAT = "FORMAT"
    """The table's format refuses the change; ``why`` says for what reason."""


_TEXT = {
    ConflictKind.KEY_EXISTS: "was created meanwhile",
    ConflictKind.KEY_DOES_NOT_EXIST: "does not exist",
    ConflictKind.PAYLOAD_DIFFERS: "is of another type",
    ConflictKind.CONTENT_ID_DIFFERS: "is not the same any more: it was dropped and created anew",
    ConflictKind.VALUE_DIFFERS: "changed meanwhile",
    ConflictKind.NAMESPACE_ABSENT: "does not exist, but is needed as a namespace",
    ConflictKind.NOT_A_NAMESPACE: "is not a namespace, but is needed as one",
    ConflictKind.NAMESPACE_NOT_EMPTY: "is a namespace that is not empty",
    ConflictKind.FORMAT: "cannot change like this",
}


class Conflict(msgspec.Struct, frozen=True):
    """One key, what the writer expected there and what was found, each told for people.

    ``path`` is where inside a table of files, if it is about one file.
    """

    kind: ConflictKind
    key: Key
    expected: str = ""
    found: str = ""
    why: str = ""
    path: str = ""

    def __str__(self) -> str:
        text = f"'{self.key}' {self.why or _TEXT[self.kind]}"
        if self.path:
            text += f" at '{self.path}'"
        if self.expected or self.found:
            text += f" (expected {self.expected or 'nothing'}, found {self.found or 'nothing'})"
        return text
