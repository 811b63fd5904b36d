"""Pages about the lake as a whole: at a glance, its branches and tags, what keeps it in order."""

from __future__ import annotations

from typing import Final

import msgspec

from penstock.errors import PenstockError
from penstock.formats.registry import load_member
from penstock.lake.audits.calls import ListExpectations
from penstock.lake.call import PAGE_MAX
from penstock.lake.calls import (
    Compare,
    FigureKind,
    GetFigures,
    ListCommits,
    ListEntries,
    ListReferences,
    ListTokens,
)
from penstock.lake.transactions.calls import ListTransactions
from penstock.model.content import Namespace
from penstock.model.expectations import has_expectations
from penstock.model.references import Kind, Reference
from penstock.server.ui.elements import Child, Html, join_html, make_element
from penstock.server.ui.history_pages import show_title
from penstock.server.ui.links import (
    link_commit,
    link_reference,
    link_table,
    make_address,
    make_link,
    pin_revision,
)
from penstock.server.ui.page_frame import PageView
from penstock.server.ui.page_parts import (
    count_things,
    hide_column_name,
    show_count,
    show_facts,
    show_field,
    show_form,
    show_names,
    show_pages,
    show_problem,
    show_table,
    show_time,
    show_time_us,
    show_type,
)
from penstock.server.ui.page_request import PAGE_SIZE, PageRequest
from penstock.server.ui.plots import plot_days, show_meter

TABLES_SHOWN: Final = 10
BRANCHES_SHOWN: Final = 10
COMMITS_SHOWN: Final = 10


def show_overview(visit: PageRequest) -> PageView:
    """The lake at a glance."""
    about = visit.about
    branches = visit.do(ListReferences(kind=Kind.BRANCH, limit=BRANCHES_SHOWN + 1))
    tags = visit.do(ListReferences(kind=Kind.TAG, limit=BRANCHES_SHOWN + 1))
    body = join_html(
        make_element("h1", "Lake"),
        show_facts(
            [
                ("address", make_element("code", about.url) if about.url else None),
                ("id", make_element("code", about.id)),
                ("created", show_time(about.created)),
                ("default branch", link_reference(about.default_branch)),
                ("warehouse", make_element("code", about.warehouse) if about.warehouse else None),
                ("fork of", about.forked_from),
                ("moving to", about.moving_to),
            ]
        ),
        make_element(
            "div",
            make_element(
                "section",
                make_element("h2", "Latest commits on ", link_reference(about.default_branch)),
                _show_latest(visit),
            ),
            make_element(
                "section",
                make_element("h2", "Tables"),
                _show_tables(visit),
                make_element("h2", "Branches"),
                _show_names(branches, "branches"),
                make_element("h2", "Tags"),
                _show_names(tags, "tags"),
                make_element("h2", "In flight"),
                _show_open(visit),
            ),
            class_="columns",
        ),
    )
    return PageView("Lake", body, "")


def _show_latest(visit: PageRequest) -> Html:
    branch = visit.about.default_branch
    try:
        commits = visit.do(ListCommits(ref=branch, limit=COMMITS_SHOWN))
        figures = visit.do(GetFigures(ref=branch, about=(FigureKind.COMMITS,)))
    except PenstockError as problem:
        return show_problem(problem)
    rows = [
        (
            link_commit(commit.id, branch),
            make_link(
                make_address("commit", ref=pin_revision(commit.id, branch)),
                show_title(commit),
                class_="title",
            ),
            commit.author,
            show_time(commit.time),
        )
        for commit in commits
    ]
    return join_html(
        plot_days(figures.commits),
        show_table(("Id", "Message", "Author", "Time"), rows, empty="There are no commits yet."),
        make_element("p", make_link(make_address("log", ref=branch), "The whole log")),
    )


def _show_tables(visit: PageRequest) -> Html:
    """The first tables of the default branch."""
    branch = visit.about.default_branch
    try:
        entries = visit.do(ListEntries(at=branch, limit=PAGE_SIZE))
    except PenstockError as problem:
        return show_problem(problem)
    tables = [entry for entry in entries if not isinstance(entry.content, Namespace)]
    if not entries:
        return make_element("p", "None.", class_="dim empty")
    items = [
        make_element(
            "li",
            link_table(entry.key, branch),
            " ",
            make_element("span", show_type(entry.content), class_="dim"),
        )
        for entry in tables[:TABLES_SHOWN]
    ]
    has_more = len(tables) > TABLES_SHOWN or len(entries) == PAGE_SIZE
    more = (
        make_element("li", make_link(make_address("tables", ref=branch), "All tables")) if has_more else None
    )
    return make_element("ul", items, more, class_="plain")


def _show_names(references: tuple[Reference, ...], page: str) -> Html:
    if not references:
        return make_element("p", "None.", class_="dim empty")
    items = [
        make_element("li", link_reference(reference.name), " ", link_commit(reference.id, reference.name))
        for reference in references[:BRANCHES_SHOWN]
    ]
    more = (
        make_element("li", make_link(make_address(page), "All")) if len(references) > BRANCHES_SHOWN else None
    )
    return make_element("ul", items, more, class_="plain")


def _show_open(visit: PageRequest) -> Html:
    """How many transactions and jobs have not ended, as far as the visitor may know."""
    counts: list[Child] = []
    for page, name, call in (
        ("transactions", "transaction", ListTransactions(limit=PAGE_SIZE)),
        ("jobs", "job", load_member("lake.jobs")(limit=PAGE_SIZE)),
    ):
        try:
            count = len(visit.do(call))
        except PenstockError:
            continue
        shown = f"{PAGE_SIZE} or more {name}s" if count == PAGE_SIZE else count_things(count, name)
        counts.append(make_element("li", make_link(make_address(page), shown)))
    return make_element("ul", counts, class_="plain")


class NamesQuery(msgspec.Struct, frozen=True):
    """Which names are shown."""

    prefix: str | None = None
    after: str | None = None


def show_branches(visit: PageRequest) -> PageView:
    """Branches, and how each is related to the default branch."""
    return _list_references(visit, Kind.BRANCH, "branches", "Branches")


def show_tags(visit: PageRequest) -> PageView:
    return _list_references(visit, Kind.TAG, "tags", "Tags")


def _list_references(visit: PageRequest, kind: Kind, page: str, title: str) -> PageView:
    query: NamesQuery = visit.query
    references = visit.do(
        ListReferences(kind=kind, prefix=query.prefix or "", after=query.after or "", limit=PAGE_SIZE + 1)
    )
    shown = references[:PAGE_SIZE]
    rows = [
        (
            link_reference(reference.name),
            link_commit(reference.id, reference.name),
            _count_ahead_and_behind(visit, reference),
            make_link(make_address("expectations", branch=reference.name), "expectations", class_="badge")
            if has_expectations(reference)
            else None,
            show_time_us(reference.created_us),
            _link_work(visit, reference),
        )
        for reference in shown
    ]
    following = (
        make_address(page, prefix=query.prefix, after=shown[-1].name) if len(references) > PAGE_SIZE else None
    )
    body = join_html(
        make_element("h1", title),
        show_form(
            page,
            show_field("prefix", "Name begins with", query.prefix, type="search", data_key="/"),
            button="Show",
        ),
        show_table(
            (
                "Name",
                "Commit",
                f"Compared with {visit.about.default_branch}",
                hide_column_name("Expectations"),
                "Created",
                hide_column_name("Links"),
            ),
            rows,
            empty="None.",
        ),
        show_pages(make_address(page, prefix=query.prefix) if query.after else None, following),
    )
    return PageView(title, body, page)


def _count_ahead_and_behind(visit: PageRequest, reference: Reference) -> str:
    """How many commits a reference has that the default branch has not, and the other way round."""
    default = visit.about.default_branch
    if reference.name == default:
        return "default branch"
    try:
        relation = visit.do_soon(Compare(one=reference.name, other=default))
    except PenstockError:
        return ""
    return f"{relation.ahead:,} ahead, {relation.behind:,} behind"


def _link_work(visit: PageRequest, reference: Reference) -> list[Html]:
    default = visit.about.default_branch
    links = [make_link(make_address("tables", ref=reference.name), "tables", class_="more")]
    if reference.name != default:
        is_branch = reference.kind is Kind.BRANCH
        diff = make_address("diff", base=default, to=reference.name, since_fork=is_branch)
        links.append(make_link(diff, "diff", class_="more"))
    if reference.name != default and reference.kind is Kind.BRANCH:
        links.append(
            make_link(make_address("merge", source=reference.name, into=default), "merge…", class_="more")
        )
    return links


class BranchPageQuery(msgspec.Struct, frozen=True):
    """Which branch."""

    branch: str | None = None


def show_expectations(visit: PageRequest) -> PageView:
    """What a branch expects of everything that lands there."""
    query: BranchPageQuery = visit.query
    branch = query.branch or visit.about.default_branch
    expectations = visit.do(ListExpectations(branch=branch))
    rows = [
        (
            make_element("b", expectation.name),
            make_element("code", expectation.sql),
            [[link_table(key, branch), " "] for key in sorted(expectation.keys)],
            expectation.who,
            show_time_us(expectation.added_us),
        )
        for expectation in expectations
    ]
    body = join_html(
        make_element("h1", "Expectations of ", make_element("span", branch, class_="ref")),
        make_element(
            "p", "Queries that must return no rows. A commit that violates one is refused.", class_="sub"
        ),
        show_form("expectations", show_field("branch", "Branch", branch, list="names"), button="Show"),
        show_names(visit.list_names(Kind.BRANCH)),
        show_table(
            ("Name", "Query", "Tables", "Added by", "Added"), rows, empty="The branch has no expectations."
        ),
    )
    return PageView(f"Expectations of {branch}", body, "expectations", branch)


def show_maintenance(visit: PageRequest) -> PageView:
    """What keeps the lake in order: how much is kept, what waits to be published, who has tokens."""
    about = visit.about
    rules = [
        (rule.pattern, show_count(rule.max_commits), _show_days(rule.max_days))
        for rule in about.history_rules
        if rule.ended_us is None
    ]
    body = join_html(
        make_element("h1", "Maintenance"),
        make_element("h2", "Retention"),
        show_facts(
            [
                ("unreachable objects are kept", f"{about.grace_s / 3600:g} hours"),
                ("unreferenced data files are kept", f"{about.data_grace_days:g} days"),
                ("roots", [make_element("div", make_element("code", root)) for root in about.roots]),
            ]
        ),
        show_table(("References", "Commits", "Age"), rules, empty="All history is kept."),
        make_element("h2", "Publishing"),
        _show_publishing(visit),
        _show_requests(visit),
        make_element("h2", "Tokens"),
        _show_tokens(visit),
    )
    return PageView("Maintenance", body, "maintenance")


def _show_days(days: float | None) -> str:
    return "" if days is None else f"{days:g} days"


def _show_publishing(visit: PageRequest) -> Html:
    """Tables of the default branch whose latest versions other readers do not see yet."""
    try:
        figures = visit.do(GetFigures(about=(FigureKind.PUBLISHING,)))
    except PenstockError as problem:
        return show_problem(problem)
    waiting = figures.publishing
    longest_s = max((status.oldest_s or 0.0 for status in waiting), default=0.0)
    rows = [
        (
            link_table(status.key, visit.about.default_branch),
            status.latest_version,
            status.published,
            status.backlog,
            show_meter(status.oldest_s or 0.0, longest_s, f"{status.oldest_s or 0.0:.0f} s"),
            status.alarm,
        )
        for status in waiting
    ]
    which = "The first" if figures.published_tables == PAGE_MAX else "All"
    return show_table(
        ("Table", "Version", "Published", "Waiting", "For", "Problem"),
        rows,
        empty=f"{which} {figures.published_tables:,} published tables are up to date.",
    )


def _show_requests(visit: PageRequest) -> Html | None:
    """How many requests to move a branch there were, and how many of them met a conflict."""
    counts = visit.do(GetFigures(about=(FigureKind.REQUESTS,))).requests
    if counts is None:
        return None
    rows = [
        (
            make_element("span", requests.branch, class_="ref")
            if "*" in requests.branch
            else link_reference(requests.branch),
            show_count(requests.total),
            show_count(requests.conflicts),
            show_meter(requests.conflicts, requests.total, f"{requests.conflict_share:.1%}"),
            show_count(requests.other_errors),
        )
        for requests in counts[:PAGE_SIZE]
    ]
    return join_html(
        make_element("h2", "Conflicts"),
        make_element("p", "Commits, merges and similar requests since the server was started.", class_="sub"),
        show_table(
            ("Branch", "Requests", "Conflicts", "Share", "Other errors"),
            rows,
            empty="No branch was written to yet.",
        ),
    )


def _show_tokens(visit: PageRequest) -> Html:
    try:
        tokens = visit.do(ListTokens())
    except PenstockError as problem:
        return show_problem(problem)
    rows = [
        (token.name, token.id, ", ".join(map(str, token.grants)), show_time(token.expires) or "never")
        for token in tokens[:PAGE_SIZE]
    ]
    return show_table(("Name", "Id", "Grants", "Expires"), rows, empty="There are no tokens.")
