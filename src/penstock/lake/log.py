"""Looking through history: which commits match, and what each of them did."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import msgspec

from penstock.kernel.conflict import content_of
from penstock.kernel.kernel import Kernel
from penstock.kernel.state import diff_commits, prefix_end
from penstock.model.commits import Commit
from penstock.model.content import AnyContent
from penstock.model.encoding import NO_COMMIT, ObjectId
from penstock.model.keys import RESERVED, Key
from penstock.model.objects import CommitObject


class Difference(msgspec.Struct, frozen=True):
    """A key that differs: what it held before and what it holds after, ``None`` for nothing."""

    key: Key
    before: AnyContent | None
    after: AnyContent | None

    @property
    def sign(self) -> str:
        """``+`` added, ``-`` removed, ``~`` changed."""
        return "+" if self.before is None else "-" if self.after is None else "~"

    @property
    def type(self) -> str:
        content = self.after if self.after is not None else self.before
        assert content is not None
        return content.type

    def __repr__(self) -> str:
        return f"<{self.sign} {self.key} {self.type}>"


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Which commits a log shows; what is not given does not matter."""

    key: Key | None = None
    """Only those that changed this key, or something below it."""
    author: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    text: str | None = None
    """Only those whose message contains this, in any case."""

    def matches(self, kernel: Kernel, commit: Commit) -> bool:
        if self.author is not None and self.author not in (commit.author, *commit.stored.authors):
            return False
        if self.since is not None and commit.time < self.since:
            return False
        if self.until is not None and commit.time > self.until:
            return False
        if self.text is not None and self.text.lower() not in commit.message.lower():
            return False
        return self.key is None or _touches(kernel, commit.stored, self.key)


def _touches(kernel: Kernel, commit: CommitObject, key: Key) -> bool:
    stored = key.encode()
    parent = kernel.history.link(commit.parent)
    if parent is None:
        return False
    if diff_commits(kernel.objects, parent, commit, stored, stored + b"\0"):
        return True
    below = stored + b"\0"
    return bool(diff_commits(kernel.objects, parent, commit, below, prefix_end(below)))


def walk(kernel: Kernel, start: ObjectId, chosen: Filter, all_parents: bool) -> Iterator[Commit]:
    """The commits from one backwards that match."""
    for one, stored in kernel.walk(start, all_parents):
        commit = Commit.of(one, stored)
        if chosen.since is not None and commit.time < chosen.since and not all_parents:
            return
        if chosen.matches(kernel, commit):
            yield commit


def differences(
    kernel: Kernel, before: ObjectId, after: ObjectId, prefix: Key | None = None
) -> list[Difference]:
    """What differs between two commits, at a key and below it, or everywhere."""
    if prefix is None:
        changes = kernel.diff(before, after)
    else:
        stored = prefix.encode()
        changes = kernel.diff(before, after, stored, stored + b"\0")
        changes |= kernel.diff(before, after, stored + b"\0", prefix_end(stored + b"\0"))
    return [
        Difference(Key.decode(key), content_of(kernel.objects, old), content_of(kernel.objects, new))
        for key, (old, new) in changes.items()
        if not key.startswith(RESERVED)
    ]


def changes_of(kernel: Kernel, commit: ObjectId) -> list[Difference]:
    """What a commit changed, compared with its first parent."""
    if commit == NO_COMMIT:
        return []
    return differences(kernel, kernel.history.commit(commit).parent, commit)
