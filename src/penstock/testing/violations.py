"""What a history checker can find wrong. Each is a value, and reads as a sentence."""

from __future__ import annotations

import msgspec


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """A promise that was not kept."""


class BrokenChain(Violation, frozen=True, kw_only=True):
    """The branch is not one chain of commits, each one deeper than its parent."""

    commit: str
    why: str

    def __str__(self) -> str:
        return f"commit {self.commit[:8]} breaks the chain: {self.why}"


class LostCommit(Violation, frozen=True, kw_only=True):
    """A commit was acknowledged and is not there."""

    key: str
    client: str
    commit: str | None

    def __str__(self) -> str:
        return (
            f"request {self.key} of {self.client} was acknowledged as {_shorten_id(self.commit)}, but is not "
            "there"
        )


class DoubledCommit(Violation, frozen=True, kw_only=True):
    """One request was applied more than once."""

    key: str
    commits: tuple[str, ...]

    def __str__(self) -> str:
        commits = ", ".join(map(_shorten_id, self.commits))
        return f"request {self.key} was applied {len(self.commits)} times: {commits}"


class RefusedButApplied(Violation, frozen=True, kw_only=True):
    """A request was refused, and applied all the same."""

    key: str
    client: str
    commit: str
    why: str

    def __str__(self) -> str:
        return (
            f"request {self.key} of {self.client} was refused ({self.why}), but is commit {self.commit[:8]}"
        )


class StrangeCommit(Violation, frozen=True, kw_only=True):
    """A commit that nobody asked for."""

    key: str
    commit: str

    def __str__(self) -> str:
        return f"nobody asked for commit {self.commit[:8]} (request {self.key})"


class WrongAnswer(Violation, frozen=True, kw_only=True):
    """A request was acknowledged as another commit than the one it made."""

    key: str
    told: str
    found: str

    def __str__(self) -> str:
        return f"request {self.key} was told commit {self.told[:8]}, but is commit {self.found[:8]}"


class TornCommit(Violation, frozen=True, kw_only=True):
    """A commit does not hold exactly what it was asked to."""

    key: str
    commit: str
    table: str
    asked: str
    found: str

    def __str__(self) -> str:
        commit = f"commit {self.commit[:8]} (request {self.key})"
        return f"{commit} has {self.found} at '{self.table}', not {self.asked}"


class OutOfOrder(Violation, frozen=True, kw_only=True):
    """A request was acknowledged before another was made, but comes after it."""

    first: str
    second: str

    def __str__(self) -> str:
        return f"request {self.first} was acknowledged before {self.second} was made, but comes after it"


class LostUpdate(Violation, frozen=True, kw_only=True):
    """A commit replaced a value that its writer had not seen."""

    key: str
    commit: str
    table: str
    seen: str
    found: str

    def __str__(self) -> str:
        return (
            f"commit {self.commit[:8]} (request {self.key}) was written on {self.seen} at '{self.table}', "
            f"but replaced {self.found}"
        )


class StaleRead(Violation, frozen=True, kw_only=True):
    """A read saw what the branch never was, or no longer or not yet was at that time."""

    client: str
    number: int
    values: str
    why: str

    def __str__(self) -> str:
        return f"read {self.number} of {self.client} saw {self.values}: {self.why}"


class BrokenLog(Violation, frozen=True, kw_only=True):
    """The ref log does not tell what happened to the branch."""

    position: int
    why: str

    def __str__(self) -> str:
        return f"ref log entry {self.position}: {self.why}"


def _shorten_id(commit: str | None) -> str:
    return commit[:8] if commit else "no commit"
