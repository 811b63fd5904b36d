"""Calls that read the lake: what it is, its references, commits and contents.

They are apart from those that write, which find out by them what an earlier try of theirs came to.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Final

from penstock.errors import InvalidRequest
from penstock.lake.answers import (
    About,
    CatalogEntry,
    Comparison,
    Difference,
    Figures,
    LandedRequest,
    LogLine,
    LogSearch,
    RequestCounts,
    ResolvedCommit,
)
from penstock.lake.call import Call, ReadAt
from penstock.model.commits import Commit
from penstock.model.encoding import ObjectId
from penstock.model.keys import Key
from penstock.model.names import check_name, parse_revision
from penstock.model.references import Kind, Reference
from penstock.model.tokens import Token

SEARCHED_MAX: Final = 1000
"""How many commits one search of a log reads, if nothing is said."""


class GetAbout(Call[About], frozen=True, kw_only=True):
    """What the lake is."""

    path = "/lake"
    answer = About


class GetSetting(Call[str | None], frozen=True, kw_only=True):
    """A setting of the lake, by its name."""

    path = "/settings/{name}"
    answer = str | None

    name: str


class ListTokens(Call[tuple[Token, ...]], frozen=True, kw_only=True):
    """Every token that may be used here, without its secret."""

    path = "/tokens"
    answer = tuple[Token, ...]


class FindToken(Call[Token | None], frozen=True, kw_only=True):
    """The token with an id, if there is one. It is asked within a server, and does not travel."""

    answer = Token | None

    id: str


class ListReferences(Call[tuple[Reference, ...]], frozen=True, kw_only=True):
    """References of one kind by name; the next page is ``after`` the last name."""

    path = "/references"
    answer = tuple[Reference, ...]

    kind: Kind = Kind.BRANCH
    """`branch`, `tag` or `deleted`."""
    prefix: str = ""
    """How the names begin."""
    after: str = ""
    """Go on after this name, the last one of the page before."""
    limit: int | None = 100
    """At most this many."""


class GetReference(Call[Reference], frozen=True, kw_only=True):
    """A branch or tag as it is now."""

    path = "/references/{name}"
    answer = Reference

    name: str

    def check_sendable(self) -> None:
        check_name(self.name)


class GetReferenceLog(Call[tuple[LogLine, ...]], frozen=True, kw_only=True):
    """The changes of a branch or tag, newest first; also those of a deleted one."""

    path = "/references/{name}/log"
    answer = tuple[LogLine, ...]

    name: str
    before: int | None = None
    """Go on before this position, the last one of the page before."""
    limit: int | None = 100
    """At most this many."""

    def check_sendable(self) -> None:
        check_name(self.name)


class Resolve(Call[ResolvedCommit], frozen=True, kw_only=True):
    """The commit that a revision such as ``main~3`` names."""

    path = "/resolve"
    answer = ResolvedCommit

    revision: str | None = None
    """The default branch if nothing is given."""

    def check_sendable(self) -> None:
        if self.revision is not None:
            parse_revision(self.revision)


class GetContents(ReadAt[tuple[CatalogEntry, ...]], frozen=True, kw_only=True):
    """The contents of keys; keys without a content are left out."""

    path = "/contents"
    answer = tuple[CatalogEntry, ...]
    pinned_by = ("at",)

    key: tuple[Key, ...]
    """May be given several times."""


class ListEntries(ReadAt[tuple[CatalogEntry, ...]], frozen=True, kw_only=True):
    """Keys and what they hold, in order; the next page is ``after`` the last key."""

    path = "/entries"
    answer = tuple[CatalogEntry, ...]
    pinned_by = ("at",)

    prefix: Key | None = None
    """Only this key and what is below it."""
    after: Key | None = None
    """Go on after this key, the last one of the page before."""
    limit: int | None = 100
    """At most this many."""


class GetCommit(Call[Commit], frozen=True, kw_only=True):
    """A commit."""

    path = "/commits/{revision}"
    answer = Commit
    pinned_by = ("revision",)

    revision: str
    via: str | None = None
    """The reference by which the commit was found, if only its id is given."""

    def check_sendable(self) -> None:
        parse_revision(self.revision)


class GetChanges(Call[tuple[Difference, ...]], frozen=True, kw_only=True):
    """What a commit changed, compared with its first parent; the next page is ``after`` the last key."""

    path = "/commits/{revision}/changes"
    answer = tuple[Difference, ...]
    pinned_by = ("revision",)

    revision: str
    via: str | None = None
    """The reference by which the commit was found, if only its id is given."""
    after: Key | None = None
    """Go on after this key, the last one of the page before."""
    limit: int | None = 100
    """At most this many."""

    def check_sendable(self) -> None:
        parse_revision(self.revision)


class ListCommits(Call[tuple[Commit, ...]], frozen=True, kw_only=True):
    """Commits, newest first, that match everything given."""

    path = "/log"
    answer = tuple[Commit, ...]

    ref: str | None = None
    """The revision to begin at; the default branch if nothing is given."""
    via: str | None = None
    """The reference by which the commit was found, if only its id is given."""
    table: Key | None = None
    """Only those that changed this key, or something below it."""
    author: str | None = None
    """Only those that name this author."""
    since: datetime | None = None
    """Only those from this time on."""
    until: datetime | None = None
    """Only those up to this time."""
    text: str | None = None
    """Only those whose message contains this, in any case."""
    after: str | None = None
    """Go on after this commit, the last one of the page before."""
    all_parents: bool = False
    """Also show merged commits."""
    limit: int | None = 100
    """At most this many."""


class SearchLog(Call[LogSearch], frozen=True, kw_only=True):
    """Commits that match everything given among the next ones of a log, and where to go on."""

    path = "/log/search"
    answer = LogSearch

    ref: str | None = None
    """The revision to begin at; the default branch if nothing is given."""
    via: str | None = None
    """The reference by which the commit was found, if only its id is given."""
    table: Key | None = None
    """Only those that changed this key, or something below it."""
    author: str | None = None
    """Only those that name this author."""
    since: datetime | None = None
    """Only those from this time on."""
    until: datetime | None = None
    """Only those up to this time."""
    text: str | None = None
    """Only those whose message contains this, in any case."""
    after: str | None = None
    """Go on after this commit: `reached` of the answer before."""
    all_parents: bool = False
    """Also look at what was merged."""
    limit: int | None = 100
    """At most this many."""
    within: int | None = SEARCHED_MAX
    """Read at most this many commits."""


class FigureKind(StrEnum):
    """What figures are about."""

    COMMITS = "commits"
    """How many commits were made each day."""
    REQUESTS = "requests"
    """How many requests moved each branch, and how many met a conflict."""
    PUBLISHING = "publishing"
    """Which tables wait to be published, and for how long."""
    SIZES = "sizes"
    """How large a table is, its files are and its latest versions were."""


class GetFigures(Call[Figures], frozen=True, kw_only=True):
    """Figures of the lake: commits a day, conflicts, what waits to be published, sizes of a table."""

    path = "/figures"
    answer = Figures

    ref: str | None = None
    """The revision whose commits are counted, and at which a table is measured; the default branch if nothing
    is given."""
    via: str | None = None
    """The reference by which the commit was found, if only its id is given."""
    about: tuple[str, ...] = ()
    """`commits`, `requests`, `publishing` or `sizes`; may be given several times. All if nothing is given."""
    table: Key | None = None
    """The table whose `sizes` are wanted."""

    def check_sendable(self) -> None:
        kinds = [kind.value for kind in FigureKind]
        for name in self.about:
            if name not in kinds:
                raise InvalidRequest(
                    f"there are no figures about '{name}'; there are figures about {', '.join(kinds)}"
                )
        if FigureKind.SIZES in self.about and self.table is None:
            raise InvalidRequest("figures of sizes are of one table: give its key as 'table'")

    def includes_kind(self, kind: FigureKind) -> bool:
        return not self.about or kind in self.about


class CountRequests(Call[tuple[RequestCounts, ...] | None], frozen=True, kw_only=True):
    """What requests to move branches came to. It is asked within a server, and does not travel."""

    answer = tuple[RequestCounts, ...] | None


class Diff(Call[tuple[Difference, ...]], frozen=True, kw_only=True):
    """What differs between two revisions, by key; the next page is ``after`` the last key."""

    path = "/diff"
    answer = tuple[Difference, ...]
    pinned_by = ("before", "to")

    before: str
    """The revision to compare with."""
    before_via: str | None = None
    """The reference by which it was found, if only a commit's id is given."""
    to: str
    """The revision that is compared."""
    to_via: str | None = None
    """The reference by which it was found, if only a commit's id is given."""
    prefix: Key | None = None
    """Only this key and what is below it."""
    after: Key | None = None
    """Go on after this key, the last one of the page before."""
    limit: int | None = 100
    """At most this many."""


class Compare(Call[Comparison], frozen=True, kw_only=True):
    """How two revisions are related: their common ancestor, and how many commits only one of them has."""

    path = "/compare"
    answer = Comparison

    one: str
    """A revision."""
    other: str
    """Another one."""


class GetOutcome(Call[LandedRequest | None], frozen=True, kw_only=True):
    """The outcome of the request with an idempotency key; null if it was not applied."""

    path = "/outcomes/{key}"
    answer = LandedRequest | None

    key: str
    """The idempotency key."""
    branch: str | None = None
    """The branch or tag that the request was about; the default branch if nothing is given."""
    asked: ObjectId | None = None
    """A hash of the original request; with it, only the outcome of exactly that request is answered."""
    who: str | None = None
    """The name of the token that used the key. Behind a server, keys belong to tokens, and only an
    administrator of the lake may ask for another token's. With direct access to the store, leave it out for
    keys that belong to no token."""
