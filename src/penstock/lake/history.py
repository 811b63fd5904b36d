"""What a lake tells of its history: commits, what they changed, and what differs between two."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Unpack

from penstock.errors import InvalidName
from penstock.lake import calls
from penstock.lake.answers import Comparison, Difference, Figures, LogSearch
from penstock.lake.call_maker import CallMaker
from penstock.lake.options import CommitFilter
from penstock.lake.read_calls import SEARCHED_MAX
from penstock.model.commits import Commit
from penstock.model.keys import Key
from penstock.model.names import parse_time

LOG_LIMIT = 100


class LakeHistory(CallMaker):
    """The part of a lake that tells of its history."""

    def show(self, revision: str | None = None) -> Commit:
        """A commit."""
        return self.do(calls.GetCommit(revision=self._or_default(revision)))

    def changes(self, revision: str | Commit | None = None) -> list[Difference]:
        """What a commit changed, compared with its first parent."""
        revision = revision.id if isinstance(revision, Commit) else revision
        commit, via = self._pin_revision(self._or_default(revision))
        call = calls.GetChanges(revision=commit, via=via)
        return Differences(self.pages(call, None, lambda last: {"after": last.key}))

    def _pin_revision(
        self, revision: str, limit: int | None = None, via: str | None = None
    ) -> tuple[str, str | None]:
        """A revision that a list is asked for at, and the reference that led to it.

        A list that comes in several pages is asked for at one commit, whatever happens in between.
        """
        most = self.page_max
        if via is not None or most is None or (limit is not None and limit <= most):
            return revision, via
        resolved = self.do(calls.Resolve(revision=revision))
        return resolved.commit, resolved.name

    def log(
        self,
        ref: str | None = None,
        *,
        table: str | Key | None = None,
        since: str | datetime | None = None,
        until: str | datetime | None = None,
        limit: int | None = LOG_LIMIT,
        via: str | None = None,
        **options: Unpack[CommitFilter],
    ) -> list[Commit]:
        """Commits, newest first, that match everything given.

        ``table`` may also be a namespace. ``author`` is one that a commit names, ``text`` is part of its
        message. ``after`` goes on after the commit with that id, the last one of
        the page before. ``all_parents`` also shows what was merged. ``via`` is the reference that led to
        ``ref``, where that is a commit id. What is told here, or by ``diff`` and ``changes``, does not count
        as read in a transaction.
        """
        start, via = self._pin_revision(self._or_default(ref), limit, via)
        call = calls.ListCommits(
            ref=start,
            via=via,
            table=Key.parse(table) if table is not None else None,
            since=_parse_time(since),
            until=_parse_time(until),
            **options,
        )
        return CommitLog(self.pages(call, limit, lambda last: {"after": last.id}))

    def search_log(
        self,
        ref: str | None = None,
        *,
        table: str | Key | None = None,
        since: str | datetime | None = None,
        until: str | datetime | None = None,
        limit: int = LOG_LIMIT,
        within: int = SEARCHED_MAX,
        **options: Unpack[CommitFilter],
    ) -> LogSearch:
        """Commits that match everything given among the next ``within`` ones of a log, newest first.

        For a log that is too long to be searched at once. ``reached`` of the answer is the commit to go on
        ``after``; ``None`` says that all were searched. The other arguments are those of ``log``.
        """
        call = calls.SearchLog(
            ref=self._or_default(ref),
            table=Key.parse(table) if table is not None else None,
            since=_parse_time(since),
            until=_parse_time(until),
            limit=limit,
            within=within,
            **options,
        )
        return self.do(call)

    def figures(self, ref: str | None = None, *, table: str | Key | None = None) -> Figures:
        """Statistics: commits a day, conflicts, unpublished versions, and the sizes of a table if one is
        named.

        ``commits`` counts those of ``ref``, and ``table`` is measured there. A server counts ``requests`` for
        the branches that may be read; they are ``None`` without one. What is told here does not count as read
        in a transaction.
        """
        key = Key.parse(table) if table is not None else None
        return self.do(calls.GetFigures(ref=self._or_default(ref), table=key))

    def diff(self, before: str, after: str, prefix: str | Key | None = None) -> list[Difference]:
        """Return the differences between two references or commits, at a key and below it, or everywhere."""
        (first, first_via), (second, second_via) = self._pin_revision(before), self._pin_revision(after)
        scope = Key.parse(prefix) if prefix is not None else None
        call = calls.Diff(before=first, before_via=first_via, to=second, to_via=second_via, prefix=scope)
        return Differences(self.pages(call, None, lambda last: {"after": last.key}))

    def compare(self, one: str, other: str) -> Comparison:
        """The common ancestor of two revisions, and how many commits only one of them has."""
        return self.do(calls.Compare(one=one, other=other))


def _parse_time(text: str | datetime | None) -> datetime | None:
    if text is None:
        return None
    if isinstance(text, datetime):
        return text if text.tzinfo else text.replace(tzinfo=UTC)
    try:
        return parse_time(text)
    except (OverflowError, OSError, ValueError):
        raise InvalidName(f"{text!r} is not a valid commit time") from None


class CommitLog(list[Commit]):
    """Commits, newest first."""

    def _repr_html_(self) -> str:
        from penstock.lake.notebook import show_log

        return show_log(self)


class Differences(list[Difference]):
    """Keys that differ, in their order."""

    def _repr_html_(self) -> str:
        from penstock.lake.notebook import show_differences

        return show_differences(self)
