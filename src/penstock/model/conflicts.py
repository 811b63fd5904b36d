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
    ConflictKind.KEY_EXISTS: "was created by another writer since",
    ConflictKind.KEY_DOES_NOT_EXIST: "does not exist",
    ConflictKind.PAYLOAD_DIFFERS: "is of another type",
    ConflictKind.CONTENT_ID_DIFFERS: "is another table now: it was dropped and created again",
    ConflictKind.VALUE_DIFFERS: "changed meanwhile",
    ConflictKind.NAMESPACE_ABSENT: "does not exist, but is needed as a namespace",
    ConflictKind.NOT_A_NAMESPACE: "is not a namespace, but is needed as one",
    ConflictKind.NAMESPACE_NOT_EMPTY: "is a namespace that is not empty",
    ConflictKind.FORMAT: "cannot be changed in this way",
}


_IN_MERGE = {
    ConflictKind.KEY_EXISTS: "was created on both sides",
    ConflictKind.KEY_DOES_NOT_EXIST: "was deleted in the target, but changed in the source",
    ConflictKind.VALUE_DIFFERS: "was changed on both sides",
}
"""What is said differently where two sides meet."""
_ICEBERG = (
    "the lake does not merge Iceberg tables and views: only their engines write the metadata",
    "to take one side, merge it with the mode 'force' (the source's) or 'drop' (the target's)",
    "to have both, rebase the source onto the target without it and run the job again under a new id",
)
_PATHS = ("to take one side of the table, or of a folder in it, merge that with the mode 'force' or 'drop'",)
_IN_REVERT = {
    ConflictKind.KEY_EXISTS: "was created again since that commit",
    ConflictKind.KEY_DOES_NOT_EXIST: "was deleted since that commit",
    ConflictKind.VALUE_DIFFERS: "was changed since that commit",
}
"""What is said differently where a commit is to be undone that others came after."""
_REVERT_ANYWAY = (
    (
        "to reset it to its state before that commit, without any later change, revert the commit with the "
        "mode 'force' for it"
    ),
    "to leave it as it is, revert the commit with the mode 'drop' for it",
)


class Conflict(msgspec.Struct, frozen=True):
    """A conflict at one key: what the writer expected there and what was found, both in words.

    ``why`` is a format's reason. Its clauses, between semicolons, are what is in the way, then what else is
    to be known of it, then the ways out. ``path`` is where inside a table of files, if it is about one file.
    ``found_version`` is the table's version that is in the way, for programs; ``None`` if it is not about a
    single version, and in what Penstock 0.1 answered.
    """

    kind: ConflictKind
    key: Key
    expected: str = ""
    found: str = ""
    why: str = ""
    path: str = ""
    found_version: int | None = None

    @property
    def reason(self) -> str:
        """What is in the way, as the end of a sentence that begins with the key."""
        return self.why.partition("; ")[0] or _TEXT[self.kind]

    def __str__(self) -> str:
        return self._describe_reason(self.why or _TEXT[self.kind])

    def describe_in_merge(self) -> list[str]:
        """The same where two sides of a merge meet: a line for what is in the way, then one for each further
        thing that is to be known, and for each way out. A reason with a single way out stays one sentence."""
        reason, *more = self.why.split("; ") if self.why else [_IN_MERGE.get(self.kind, _TEXT[self.kind])]
        if not more and (self.path or self.is_pointer):
            more = list(_PATHS if self.path else _ICEBERG)
        elif len(more) == 1:
            reason, more = self.why, []
        return [self._describe_reason(reason), *more]

    def describe_in_revert(self) -> list[str]:
        """The same where a commit is to be undone, and others came after it."""
        if self.why:
            first, *more = self.describe_in_merge()
            return [first, *(_REVERT_ANYWAY if tuple(more) == _PATHS else more)]
        message = self._describe_reason(_IN_REVERT.get(self.kind, _TEXT[self.kind]))
        return [message, *(_REVERT_ANYWAY if self.kind in _IN_REVERT else ())]

    @property
    def is_pointer(self) -> bool:
        """Whether both sides have an Iceberg table or view, of which the lake knows only where it is."""
        return self.kind is ConflictKind.VALUE_DIFFERS and self.found.startswith("ICEBERG_")

    def _describe_reason(self, reason: str) -> str:
        text = f"'{self.key}' {reason}"
        if self.path:
            text += f" at '{self.path}'"
        if self.expected or self.found:
            text += f" (expected {self.expected or 'nothing'}, found {self.found or 'nothing'})"
        return text
