"""Looking through history: which commits match, and what each of them did."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from datetime import datetime
from threading import Lock
from typing import Final

import msgspec

from penstock.errors import InvalidRequest, TimedOut
from penstock.kernel.history import CommitWalk
from penstock.kernel.kernel import Kernel
from penstock.kernel.lake_state import (
    count_recent_changes,
    diff_commits,
    find_prefix_end,
    has_grown,
    list_recently_changed_keys,
)
from penstock.kernel.objects import read_content
from penstock.lake.answers import Difference, LogSearch
from penstock.model.clock import to_utc_datetime
from penstock.model.commits import Commit
from penstock.model.encoding import NO_COMMIT, ObjectId
from penstock.model.keys import RESERVED, Key
from penstock.model.objects import CommitObject

PAGES_KEPT: Final = 64
"""Of so many logs by all parents it is kept where the last page ended."""
WIDTH_MAX: Final = 1000
"""A log in which more commits could be next than that is not kept."""


class CommitCriteria(msgspec.Struct, frozen=True, kw_only=True):
    """Which commits a log shows; what is not given does not matter."""

    key: Key | None = None
    """Only those that changed this key, or something below it."""
    author: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    text: str | None = None
    """Only those whose message contains this, in any case."""

    def is_before(self, commit: CommitObject) -> bool:
        """Whether a commit is older than all that are wanted."""
        return self.since is not None and to_utc_datetime(commit.time_us) < self.since


class _CommitChoice:
    """Which commits of one walk match a filter."""

    def __init__(self, kernel: Kernel, chosen: CommitCriteria) -> None:
        self._chosen = chosen
        self._changes = KeyChanges(kernel, chosen.key) if chosen.key is not None else None

    def matches_commit(self, commit_id: ObjectId, commit: CommitObject) -> bool:
        chosen = self._chosen
        if chosen.is_before(commit) or (
            chosen.until is not None and to_utc_datetime(commit.time_us) > chosen.until
        ):
            return False
        if self._changes is not None and not self._changes.has_change(commit_id, commit):
            return False
        if chosen.author is not None and chosen.author not in (commit.authors or (commit.committer,)):
            return False
        return chosen.text is None or chosen.text.lower() in commit.message.lower()


class KeyChanges:
    """Which commits of a walk changed a key, or something below it.

    A commit carries all changes that are not folded into its tree yet: those of its ancestors, and its own
    after them. So the newest of many commits tells of all of them which ones wrote the key.
    """

    def __init__(self, kernel: Kernel, key: Key) -> None:
        self._kernel, self._stored = kernel, key.encode()
        self._below = self._stored + b"\0"
        self._next: ObjectId | None = None
        """The ancestor whose changes are known."""
        self._places: list[int] = []
        """Which of the changes that it carries are about the key."""

    def has_change(self, commit_id: ObjectId, commit: CommitObject) -> bool:
        """Whether a commit changed it, compared with its first parent."""
        objects = self._kernel.objects
        parent = self._kernel.history.read_ancestor(commit.parent)
        is_known, self._next = commit_id == self._next, None
        if parent is None:
            return False
        if has_grown(parent, commit):
            if not is_known:
                names = list_recently_changed_keys(objects, commit)
                self._places = [place for place, name in enumerate(names) if self._is_about_table(name)]
            self._next = commit.parent
            own = range(count_recent_changes(parent), count_recent_changes(commit))
            if not any(place in own for place in self._places):
                return False
        return any(
            diff_commits(objects, parent, commit, start, stop)
            for start, stop in ((self._stored, self._below), (self._below, find_prefix_end(self._below)))
        )

    def _is_about_table(self, name: bytes) -> bool:
        return name == self._stored or name.startswith(self._below)


def find_matching_commits(
    kernel: Kernel, commits: CommitWalk, chosen: CommitCriteria, all_parents: bool
) -> Iterator[Commit]:
    """The commits of a walk that match. ``TimedOut`` says how far they were looked at."""
    choice = _CommitChoice(kernel, chosen)
    last: tuple[ObjectId, CommitObject] | None = None
    try:
        for last in commits:
            if chosen.is_before(last[1]) and not all_parents:
                return
            if choice.matches_commit(*last):
                yield Commit.from_stored(*last)
    except TimedOut as late:
        if last is None:
            raise
        commit = Commit.from_stored(*last)
        raise TimedOut(
            f"{late.message}\n  The log was searched back to commit {commit.id}, of "
            f"{commit.time:%Y-%m-%d %H:%M:%S} UTC. Search a part of the log at a time: newer commits with "
            "'since', older ones with 'until'.",
            commit=commit.id,
            **late.details,
        ) from None


def search_commits(
    kernel: Kernel,
    commits: CommitWalk,
    chosen: CommitCriteria,
    *,
    all_parents: bool,
    limit: int | None,
    within: int | None,
) -> LogSearch:
    """The first commits of a walk that match, among the first ``within`` ones.

    Where the time of the request ends before, it tells what it has found until then. It reads one commit at
    least, so that whoever goes on where it stopped comes to the end.
    """
    check_search(limit, within)
    choice, matched = _CommitChoice(kernel, chosen), list[Commit]()
    searched = 0
    last: tuple[ObjectId, CommitObject] | None = None
    try:
        for commit_id, commit in commits:
            if chosen.is_before(commit) and not all_parents:
                return LogSearch(commits=tuple(matched), searched=searched + 1)
            if choice.matches_commit(commit_id, commit):
                matched.append(Commit.from_stored(commit_id, commit))
            searched, last = searched + 1, (commit_id, commit)
            if searched == within or len(matched) == limit:
                break
        else:
            last = None
    except TimedOut:
        if last is None:
            raise
    if last is None or commits.is_at_end:
        return LogSearch(commits=tuple(matched), searched=searched)
    reached = Commit.from_stored(*last)
    return LogSearch(commits=tuple(matched), searched=searched, reached=reached.id, reached_time=reached.time)


def check_search(limit: int | None, within: int | None) -> None:
    """``InvalidRequest`` for a search of no commits."""
    for name, count in (("limit", limit), ("within", within)):
        if count is not None and count < 1:
            raise InvalidRequest(f"{name} must be 1 or greater, got {count}")


class LogPages:
    """Where pages of logs by all parents ended, so that the next page goes on there.

    Behind merges a commit alone does not tell what comes after it. Without this each page would walk from the
    beginning; a page that was forgotten does so.
    """

    def __init__(self) -> None:
        self._ends: OrderedDict[tuple[ObjectId, ObjectId], CommitWalk] = OrderedDict()
        self._lock = Lock()

    def remember_page(self, start: ObjectId, last: ObjectId, commits: CommitWalk) -> None:
        """Keep the place of a walk that began at ``start`` and has come to ``last``."""
        if commits.width > WIDTH_MAX:
            return
        with self._lock:
            self._ends[start, last] = commits
            self._ends.move_to_end((start, last))
            while len(self._ends) > PAGES_KEPT:
                self._ends.popitem(last=False)

    def continue_walk(self, kernel: Kernel, start: ObjectId, last: ObjectId) -> CommitWalk:
        """The commits of a log that come after one of them; ``InvalidRequest`` if it is not in the log."""
        with self._lock:
            walk = self._ends.get((start, last))
            if walk is not None:
                self._ends.move_to_end((start, last))
                return walk.copy()
        commits, goal = kernel.walk_commits(start, all_parents=True), kernel.history.read_commit(last)
        for commit_id, commit in commits:
            if commit_id == last:
                return commits
            if commit.generation < goal.generation:
                break
        raise not_in_log_error(last)


def not_in_log_error(last: ObjectId) -> InvalidRequest:
    """The refusal of a page after a commit that is not in the log."""
    return InvalidRequest(f"commit {last.hex()} is not in the log, so the listing cannot continue after it")


def list_differences(
    kernel: Kernel, before: ObjectId, after: ObjectId, prefix: Key | None = None, start: Key | None = None
) -> Iterator[Difference]:
    """What differs between two commits, at a key and below it, or everywhere; after a key, or all."""
    begin = start.encode() + b"\0" if start is not None else b""
    for first, stop in find_key_ranges(prefix):
        if stop is not None and begin >= stop:
            continue
        for key, old, new in kernel.iterate_differences(before, after, max(first, begin), stop):
            if not key.startswith(RESERVED):
                yield Difference(
                    Key.decode(key), read_content(kernel.objects, old), read_content(kernel.objects, new)
                )


def list_changes_of_commit(
    kernel: Kernel, commit: ObjectId, start: Key | None = None
) -> Iterator[Difference]:
    """What a commit changed, compared with its first parent."""
    if commit == NO_COMMIT:
        return iter(())
    return list_differences(kernel, kernel.history.read_commit(commit).parent, commit, start=start)


def find_key_ranges(prefix: Key | None) -> list[tuple[bytes, bytes | None]]:
    """Where stored keys lie: a key and what is below it, or all."""
    if prefix is None:
        return [(b"", None)]
    stored = prefix.encode()
    return [(stored, stored + b"\0"), (stored + b"\0", find_prefix_end(stored + b"\0"))]
