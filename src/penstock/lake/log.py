"""Looking through history: which commits match, and what each of them did."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from datetime import datetime
from threading import Lock
from typing import Final

import msgspec

from penstock.errors import InvalidRequest, TimedOut
from penstock.kernel.history import Walk
from penstock.kernel.kernel import Kernel
from penstock.kernel.objects import content_of
from penstock.kernel.state import added_keys, diff_commits, prefix_end
from penstock.lake.answers import Difference, LogSearch
from penstock.model.commits import Commit
from penstock.model.encoding import NO_COMMIT, ObjectId
from penstock.model.keys import RESERVED, Key
from penstock.model.objects import CommitObject

PAGES_KEPT: Final = 64
"""Of so many logs by all parents it is kept where the last page ended."""
WIDTH_MAX: Final = 1000
"""A log in which more commits could be next than that is not kept."""


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
        if self.author is not None and self.author not in (commit.author, *commit.authors):
            return False
        if self.since is not None and commit.time < self.since:
            return False
        if self.until is not None and commit.time > self.until:
            return False
        if self.text is not None and self.text.lower() not in commit.message.lower():
            return False
        return self.key is None or _changes_key(kernel, kernel.history.commit(commit.object_id), self.key)


def _changes_key(kernel: Kernel, commit: CommitObject, key: Key) -> bool:
    stored = key.encode()
    parent = kernel.history.link(commit.parent)
    if parent is None:
        return False
    names = added_keys(kernel.objects, parent, commit)
    if names is not None and not any(name == stored or name.startswith(stored + b"\0") for name in names):
        return False
    if diff_commits(kernel.objects, parent, commit, stored, stored + b"\0"):
        return True
    below = stored + b"\0"
    return bool(diff_commits(kernel.objects, parent, commit, below, prefix_end(below)))


def matching(kernel: Kernel, commits: Walk, chosen: Filter, all_parents: bool) -> Iterator[Commit]:
    """The commits of a walk that match. ``TimedOut`` says how far they were looked at."""
    commit: Commit | None = None
    try:
        for commit_id, stored in commits:
            commit = Commit.of(commit_id, stored)
            if chosen.since is not None and commit.time < chosen.since and not all_parents:
                return
            if chosen.matches(kernel, commit):
                yield commit
    except TimedOut as late:
        if commit is None:
            raise
        raise TimedOut(
            f"{late.message}\n  The log was searched back to commit {commit.id}, of "
            f"{commit.time:%Y-%m-%d %H:%M:%S} UTC. Search a part of the log at a time: newer commits with "
            "'since', older ones with 'until'.",
            commit=commit.id,
            **late.details,
        ) from None


def search(
    kernel: Kernel, commits: Walk, chosen: Filter, *, all_parents: bool, limit: int | None, within: int | None
) -> LogSearch:
    """The first commits of a walk that match, among the first ``within`` ones.

    Where the time of the request ends before, it tells what it has found until then. It reads one commit at
    least, so that whoever goes on where it stopped comes to the end.
    """
    for name, count in (("limit", limit), ("within", within)):
        if count is not None and count < 1:
            raise InvalidRequest(f"{name} must be 1 or greater, got {count}")
    matched: list[Commit] = []
    searched, last = 0, None
    try:
        for commit_id, stored in commits:
            commit = Commit.of(commit_id, stored)
            if chosen.since is not None and commit.time < chosen.since and not all_parents:
                return LogSearch(commits=tuple(matched), searched=searched + 1)
            if chosen.matches(kernel, commit):
                matched.append(commit)
            searched, last = searched + 1, commit
            if searched == within or len(matched) == limit:
                break
        else:
            last = None
    except TimedOut:
        if last is None:
            raise
    if last is not None and commits.is_at_end:
        last = None
    return LogSearch(
        commits=tuple(matched),
        searched=searched,
        reached=None if last is None else last.id,
        reached_time=None if last is None else last.time,
    )


class LogPages:
    """Where pages of logs by all parents ended, so that the next page goes on there.

    Behind merges a commit alone does not tell what comes after it. Without this each page would walk from the
    beginning; a page that was forgotten does so.
    """

    def __init__(self) -> None:
        self._ends: OrderedDict[tuple[ObjectId, ObjectId], Walk] = OrderedDict()
        self._lock = Lock()

    def keep(self, start: ObjectId, last: ObjectId, commits: Walk) -> None:
        """Keep the place of a walk that began at ``start`` and has come to ``last``."""
        if commits.width > WIDTH_MAX:
            return
        with self._lock:
            self._ends[start, last] = commits
            self._ends.move_to_end((start, last))
            while len(self._ends) > PAGES_KEPT:
                self._ends.popitem(last=False)

    def after(self, kernel: Kernel, start: ObjectId, last: ObjectId) -> Walk:
        """The commits of a log that come after one of them; ``InvalidRequest`` if it is not in the log."""
        with self._lock:
            walk = self._ends.get((start, last))
            if walk is not None:
                self._ends.move_to_end((start, last))
                return walk.copy()
        commits, goal = kernel.walk(start, all_parents=True), kernel.history.commit(last)
        for commit_id, commit in commits:
            if commit_id == last:
                return commits
            if commit.generation < goal.generation:
                break
        raise not_in_log_error(last)


def not_in_log_error(last: ObjectId) -> InvalidRequest:
    """The refusal of a page after a commit that is not in the log."""
    return InvalidRequest(f"commit {last.hex()} is not in the log, so the listing cannot continue after it")


def differences(
    kernel: Kernel, before: ObjectId, after: ObjectId, prefix: Key | None = None, start: Key | None = None
) -> Iterator[Difference]:
    """What differs between two commits, at a key and below it, or everywhere; after a key, or all."""
    begin = start.encode() + b"\0" if start is not None else b""
    for first, stop in ranges(prefix):
        if stop is not None and begin >= stop:
            continue
        for key, old, new in kernel.differing(before, after, max(first, begin), stop):
            if not key.startswith(RESERVED):
                yield Difference(
                    Key.decode(key), content_of(kernel.objects, old), content_of(kernel.objects, new)
                )


def changes_of(kernel: Kernel, commit: ObjectId, start: Key | None = None) -> Iterator[Difference]:
    """What a commit changed, compared with its first parent."""
    if commit == NO_COMMIT:
        return iter(())
    return differences(kernel, kernel.history.commit(commit).parent, commit, start=start)


def ranges(prefix: Key | None) -> list[tuple[bytes, bytes | None]]:
    """Where stored keys lie: a key and what is below it, or all."""
    if prefix is None:
        return [(b"", None)]
    stored = prefix.encode()
    return [(stored, stored + b"\0"), (stored + b"\0", prefix_end(stored + b"\0"))]
