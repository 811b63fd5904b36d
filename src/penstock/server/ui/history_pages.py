"""Pages of history: the log of a revision as a graph, and what a commit changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from penstock.errors import HistoryExpired, InvalidRequest, KeyNotFound, TimedOut
from penstock.kernel.time_limits import limit_reads
from penstock.lake.answers import Difference, LogSearch
from penstock.lake.calls import GetChanges, GetCommit, GetContents, GetReferenceLog, SearchLog
from penstock.lake.plugins import find_plugin
from penstock.lake.suggestion import add_suggestion
from penstock.model.clock import now_us
from penstock.model.commits import Commit
from penstock.model.keys import Key
from penstock.model.names import parse_moment
from penstock.server.ui.elements import Html, join_html, make_element
from penstock.server.ui.graph import draw_graph
from penstock.server.ui.links import (
    link_commit,
    link_table,
    make_address,
    make_link,
    pin_revision,
    shorten_revision,
)
from penstock.server.ui.page_frame import PageView
from penstock.server.ui.page_parts import (
    count_things,
    hide_column_name,
    show_facts,
    show_field,
    show_form,
    show_names,
    show_pages,
    show_problem,
    show_references,
    show_sign,
    show_table,
    show_time,
    show_type,
    show_version,
    show_version_change,
)
from penstock.server.ui.page_request import PAGE_SIZE, PageRequest, ResolvedRef, show_ref_field

COMMITS_SHOWN: Final = 25
SEARCHED_COMMITS: Final = 100_000
"""How many commits are read for a page of those that are looked for."""
SEARCH_S: Final = 2.0
"""How long they are looked for at most."""
KEYS_SHOWN: Final = 5
"""Of the tables that a commit of the log changed."""


class LogPageQuery(msgspec.Struct, frozen=True):
    """Which commits are shown."""

    ref: str | None = None
    table: str | None = None
    author: str | None = None
    text: str | None = None
    since: str | None = None
    """A date or time in UTC, or how long ago: ``2d``."""
    until: str | None = None
    merged: bool = True
    """Whether what was merged is shown too."""
    after: str | None = None

    @property
    def is_search(self) -> bool:
        """Whether only some commits of the history are wanted."""
        return any((self.table, self.author, self.text, self.since, self.until))

    def make_address(self, ref: str | None, after: str | None = None) -> str:
        """The page with the same choice."""
        merged = None if self.merged else "false"
        chosen = {name: getattr(self, name) for name in ("table", "author", "text", "since", "until")}
        return make_address("log", ref=ref, **chosen, merged=merged, after=after)


def show_log(visit: PageRequest) -> PageView:
    """The log of a revision."""
    query: LogPageQuery = visit.query
    place = visit.find_place(query.ref)
    try:
        listed = _show_page(visit, query, place, _find_commits(visit, query, place))
    except TimedOut as problem:
        listed = show_problem(problem)
    body = join_html(
        _show_heading(visit, place, "Log of "),
        show_form(
            "log",
            show_ref_field("Revision", query.ref, place),
            show_field("table", "Table", query.table, type="search"),
            show_field("author", "Author", query.author, type="search"),
            show_field("text", "Message has", query.text, type="search", data_key="/"),
            show_field("since", "Since", query.since, placeholder="2026-11-01 or 2d", class_="short"),
            show_field("until", "Until", query.until, class_="short"),
            button="Show",
        ),
        show_names(visit.list_names()),
        listed,
    )
    return PageView(f"Log of {shorten_revision(place.ref)}", body, "log", place.ref)


def _find_commits(visit: PageRequest, query: LogPageQuery, place: ResolvedRef) -> LogSearch:
    """A page of commits. A search that reads many ends before, and says where it goes on."""
    if place.is_empty:
        return LogSearch(commits=(), searched=0)
    now = now_us()
    call = SearchLog(
        ref=place.commit,
        via=place.via,
        table=Key.parse(query.table) if query.table else None,
        author=query.author,
        text=query.text,
        since=parse_moment(query.since, now) if query.since else None,
        until=parse_moment(query.until, now) if query.until else None,
        after=query.after,
        all_parents=query.merged and not query.is_search,
        limit=COMMITS_SHOWN,
        within=SEARCHED_COMMITS,
    )
    with limit_reads(SEARCH_S):
        return visit.do(call)


def _show_page(visit: PageRequest, query: LogPageQuery, place: ResolvedRef, search: LogSearch) -> Html:
    shown = search.commits
    is_whole = query.merged and not query.is_search
    graph = draw_graph(
        ((commit.id, commit.parents if is_whole else commit.parents[:1]) for commit in shown),
        is_connected=not query.is_search,
    )
    is_cut = search.reached is not None and len(shown) < COMMITS_SHOWN
    following = query.make_address(place.pinned_ref, search.reached) if search.reached is not None else None
    return join_html(
        _show_commits(visit, place, shown, graph) if shown else None,
        None if shown or is_cut else _show_nothing(visit, query, place),
        show_searched(search, place) if is_cut else None,
        show_pages(
            query.make_address(query.ref) if query.after else None,
            following,
            next_text="Look further »" if is_cut else "Next page »",
        ),
    )


def show_searched(search: LogSearch, place: ResolvedRef) -> Html:
    """How far a search came that did not come to the end."""
    return make_element(
        "p",
        f"{count_things(len(search.commits), 'commit')} found in the {search.searched:,} that were ",
        "searched, back to ",
        link_commit(search.reached or "", place.via),
        " of ",
        show_time(search.reached_time),
        ".",
        class_="dim",
    )


def _show_heading(visit: PageRequest, place: ResolvedRef, title: str) -> Html:
    return join_html(
        make_element("h1", title, make_element("span", shorten_revision(place.ref), class_="ref")),
        make_element(
            "p",
            "at ",
            link_commit(place.commit, place.via),
            " ",
            show_references(visit.names.get(place.commit, ())),
            " · ",
            make_link(make_address("tables", ref=place.ref), "tables"),
            " · ",
            make_link(make_address("diff", base=visit.about.default_branch, to=place.ref), "diff"),
            " · ",
            make_link(make_address("reference", name=place.via), "its history") if place.via else None,
            class_="sub",
        ),
    )


def _show_nothing(visit: PageRequest, query: LogPageQuery, place: ResolvedRef) -> Html:
    """That no commits were found, and which table was probably meant if that is why."""
    nothing = make_element("p", "No commits match.", class_="dim empty")
    if not query.table or place.is_empty:
        return nothing
    key = Key.parse(query.table)
    if visit.do(GetContents(at=place.pinned_ref, key=(key,))):
        return nothing
    problem = KeyNotFound(
        f"There is no '{key}' at '{shorten_revision(place.ref)}'.", key=str(key), ref=place.ref
    )
    add_suggestion(problem, visit.ask.catalogue)
    meant = problem.details.get("did_you_mean")
    log_of_meant = make_link(make_address("log", ref=query.ref, table=meant), "Show that", class_="button")
    return join_html(nothing, show_problem(problem), make_element("p", log_of_meant) if meant else None)


def _show_commits(
    visit: PageRequest, place: ResolvedRef, commits: Sequence[Commit], graph: Sequence[Html]
) -> Html:
    lines = [
        make_element(
            "tr",
            make_element("td", picture, class_="graph"),
            make_element(
                "td",
                make_element(
                    "div",
                    make_link(
                        make_address("commit", ref=pin_revision(commit.id, place.via)),
                        show_title(commit),
                        class_="title",
                    ),
                    " ",
                    show_references(visit.names.get(commit.id, ())),
                ),
                make_element("div", _show_keys(visit, place, commit), class_="keys"),
            ),
            make_element("td", commit.author, class_="author"),
            make_element("td", show_time(commit.time), class_="when"),
            make_element("td", link_commit(commit.id, place.via), class_="when short-id"),
        )
        for commit, picture in zip(commits, graph, strict=True)
    ]
    header = [
        make_element(
            "th",
            make_element("span", name, class_="hidden" if name in ("Graph", "Id") else None),
            scope="col",
        )
        for name in ("Graph", "Commit", "Author", "Time", "Id")
    ]
    return make_element(
        "div",
        make_element(
            "table",
            make_element("thead", make_element("tr", header)),
            make_element("tbody", lines),
            class_="log",
        ),
        class_="scroll",
    )


def show_title(commit: Commit) -> str:
    """The first line of a commit's message."""
    return commit.message.partition("\n")[0].strip()[:200] or "(no message)"


def _show_keys(visit: PageRequest, place: ResolvedRef, commit: Commit) -> list[Html]:
    """The first tables that a commit changed."""
    changes = find_changes(visit, place, commit.id, None, KEYS_SHOWN + 1)
    if changes is None:
        return []
    tables = [change for change in changes if change.type != "NAMESPACE"] or changes
    ref = pin_revision(commit.id, place.via)
    keys = [
        make_element(
            "span",
            show_sign(change.sign),
            link_table(change.key, ref) if change.after is not None else str(change.key),
            f" {version}" if (version := show_version(change.after)) else None,
            class_="key",
        )
        for change in tables[:KEYS_SHOWN]
    ]
    return [*keys, make_element("span", "…", class_="dim")] if len(changes) > KEYS_SHOWN else keys


def find_changes(
    visit: PageRequest, place: ResolvedRef, commit: str, after: Key | None, limit: int
) -> Sequence[Difference] | None:
    """What a commit changed; ``None`` if what was before it has expired."""
    try:
        return visit.do(GetChanges(revision=commit, via=place.via, after=after, limit=limit))
    except HistoryExpired:
        return None


class CommitQuery(msgspec.Struct, frozen=True):
    """Which commit, and from which key on its changes are shown."""

    ref: str | None = None
    after: str | None = None


def show_commit(visit: PageRequest) -> PageView:
    """A commit and its changes."""
    query: CommitQuery = visit.query
    place = visit.find_place(query.ref)
    if place.is_empty:
        raise InvalidRequest(f"'{place.ref}' has no commit yet")
    commit = visit.do(GetCommit(revision=place.commit, via=place.via))
    after = Key.parse(query.after) if query.after else None
    changes = find_changes(visit, place, commit.id, after, PAGE_SIZE + 1)
    parent = pin_revision(commit.parents[0], place.via) if commit.parents else ""
    title = show_title(commit)
    rest = commit.message.partition("\n")[2].strip()
    body = join_html(
        make_element("h1", title),
        make_element("pre", rest, class_="message") if rest else None,
        show_facts(
            [
                ("commit", make_element("code", commit.id)),
                ("at", show_references(visit.names.get(commit.id, ()))),
                ("author", ", ".join(commit.authors) or commit.author),
                ("committer", commit.committer if commit.authors[:1] != (commit.committer,) else ""),
                ("signed off by", ", ".join(commit.signed_off_by)),
                ("time", show_time(commit.time)),
                ("parents", [[link_commit(one_parent, place.via), " "] for one_parent in commit.parents]),
                ("idempotency key", commit.key),
                *((name, ", ".join(values)) for name, values in commit.properties.items()),
            ]
        ),
        make_element(
            "p",
            make_link(make_address("tables", ref=place.pinned_ref), "Tables at this commit", class_="button"),
            make_link(make_address("log", ref=place.pinned_ref), "Log from here", class_="button"),
            make_link(
                make_address("diff", base=parent, to=place.pinned_ref),
                "Diff with its parent",
                class_="button",
            )
            if parent
            else None,
            _link_revert(visit, place, commit),
            class_="actions",
        ),
        make_element("h2", "Changes"),
        _show_changes(place, changes, parent),
    )
    return PageView(title, body, "log", place.pinned_ref)


def _link_revert(visit: PageRequest, place: ResolvedRef, commit: Commit) -> Html | None:
    """To the preview of undoing a commit."""
    branch = place.via or visit.about.default_branch
    return make_link(
        make_address("revert", commit=commit.id, on=branch), f"Revert on {branch}…", class_="button"
    )


def _show_changes(place: ResolvedRef, changes: Sequence[Difference] | None, parent: str) -> Html:
    if changes is None:
        text = "Its changes are no longer known: its parent is older than the history horizon."
        return make_element("p", text, class_="dim empty")
    shown = changes[:PAGE_SIZE]
    following = None
    if len(changes) > PAGE_SIZE:
        following = make_address("commit", ref=place.pinned_ref, after=shown[-1].key)
    return join_html(show_changes(shown, parent, place.pinned_ref), show_pages(None, following))


def show_changes(changes: Sequence[Difference], base: str, to: str) -> Html:
    """Keys that differ between two revisions, with links to what differs in each table."""
    return show_table(
        (hide_column_name("Kind"), "Table", "Format", "Version", hide_column_name("Links")),
        [
            (
                show_sign(change.sign),
                link_table(change.key, to if change.after is not None else base),
                show_type(change.after if change.after is not None else change.before),
                show_version_change(change.before, change.after),
                _link_differences(change, base, to),
            )
            for change in changes
        ],
        empty="Nothing differs.",
    )


def _link_differences(change: Difference, base: str, to: str) -> list[Html] | None:
    content = change.after if change.after is not None else change.before
    if find_plugin(content) is None or not base:
        return None
    return [
        make_link(make_address("diff-rows", key=change.key, base=base, to=to), "rows", class_="more"),
        make_link(make_address("diff-files", key=change.key, base=base, to=to), "files", class_="more"),
    ]


class EventQuery(msgspec.Struct, frozen=True):
    """Whose events, and before which one."""

    name: str
    before: int | None = None


def show_events(visit: PageRequest) -> PageView:
    """What happened to a branch or tag."""
    query: EventQuery = visit.query
    call = GetReferenceLog(name=query.name, before=query.before, limit=PAGE_SIZE + 1)
    lines = visit.do(call)
    shown = lines[:PAGE_SIZE]
    rows = [
        (
            show_time(line.time),
            line.event,
            line.who,
            link_commit(line.before, line.name),
            link_commit(line.after, line.name),
            line.requests or "",
        )
        for line in shown
    ]
    following = make_address("reference", name=query.name, before=shown[-1].position)
    body = join_html(
        make_element("h1", "History of ", make_element("span", query.name, class_="ref")),
        show_table(("Time", "Event", "Who", "Before", "After", "Requests"), rows, empty="Nothing."),
        show_pages(
            make_address("reference", name=query.name) if query.before is not None else None,
            following if len(lines) > PAGE_SIZE else None,
        ),
    )
    return PageView(f"History of {query.name}", body, "branches")
