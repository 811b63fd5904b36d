"""Pages of differences between two revisions: by tables, by files and by rows."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from penstock.errors import PenstockError
from penstock.lake.answers import Comparison
from penstock.lake.calls import Compare, Diff
from penstock.model.keys import Key
from penstock.server.ui.elements import Html, join_html, make_element
from penstock.server.ui.history_pages import show_changes
from penstock.server.ui.links import link_commit, make_address, make_link, pin_revision, shorten_revision
from penstock.server.ui.page_frame import PageView
from penstock.server.ui.page_parts import (
    count_things,
    show_field,
    show_form,
    show_names,
    show_pages,
    show_problem,
    show_rows,
    show_size,
)
from penstock.server.ui.page_request import PAGE_SIZE, PageRequest, ResolvedRef, show_place
from penstock.server.ui.row_requests import FILES_MAX, RowRequest, ShownDiff, ShownFiles
from penstock.server.ui.table_pages import ROWS_SHOWN, Limit, Offset, show_files, show_row_pages


class ComparedRevisions(NamedTuple):
    """The two revisions of a difference."""

    base: ResolvedRef
    """Where it begins: the first revision, or the commit at which both parted."""
    to: ResolvedRef
    first: ResolvedRef
    """The first revision, as it was asked for."""
    relation: Comparison | None
    """How far they are apart, if that was found soon."""

    @property
    def distance_text(self) -> str:
        """How far the second revision is from the first one, in words."""
        first, to, relation = shorten_revision(self.first.ref), shorten_revision(self.to.ref), self.relation
        if relation is None:
            return f"{to} is many commits away from {first}"
        return f"{to} is {count_things(relation.ahead, 'commit')} ahead, {relation.behind:,} behind"


def find_sides(
    visit: PageRequest, base: str | None, to: str | None, *, since_fork: bool
) -> ComparedRevisions:
    """The revisions of a difference: from the first one, or from where both parted."""
    first, second = visit.find_place(base), visit.find_place(to)
    call = Compare(one=second.pinned_ref, other=first.pinned_ref)
    if since_fork:
        relation = visit.do(call)
        fork = ResolvedRef(pin_revision(relation.base, first.via), relation.base, first.via)
        return ComparedRevisions(fork, second, first, relation)
    try:
        return ComparedRevisions(first, second, first, visit.do_soon(call))
    except PenstockError:
        return ComparedRevisions(first, second, first, None)


def _link_other_base(
    page: str, sides: ComparedRevisions, *, since_fork: bool, **query: object
) -> Html | None:
    """To the same difference from where both parted, and from there to that of all."""
    if sides.relation is None or not sides.relation.behind:
        return None
    revisions = {"base": sides.first.ref, "to": sides.to.ref}
    if since_fork:
        return make_link(make_address(page, **revisions, **query), "all differences")
    if not sides.relation.ahead:
        return None
    name = f"only what {shorten_revision(sides.to.ref)} changed"
    return make_link(make_address(page, **revisions, **query, since_fork=True), name)


class DiffQuery(msgspec.Struct, frozen=True):
    """Which revisions, and which of their tables."""

    base: str | None = None
    to: str | None = None
    since_fork: bool = False
    """Whether the difference begins where both parted, so that it is what the second one changed."""
    prefix: str | None = None
    after: str | None = None


def show_diff(visit: PageRequest) -> PageView:
    """Tables that differ between two revisions."""
    query: DiffQuery = visit.query
    sides = find_sides(visit, query.base, query.to, since_fork=query.since_fork)
    base, to = sides.base, sides.to
    changes = visit.do(
        Diff(
            before=base.commit,
            before_via=base.via,
            to=to.commit,
            to_via=to.via,
            prefix=Key.parse(query.prefix) if query.prefix else None,
            after=Key.parse(query.after) if query.after else None,
            limit=PAGE_SIZE + 1,
        )
    )
    shown = changes[:PAGE_SIZE]
    first = make_address(
        "diff", base=sides.first.ref, to=to.ref, since_fork=query.since_fork, prefix=query.prefix
    )
    following = None
    if len(changes) > PAGE_SIZE:
        following = make_address(
            "diff", base=base.pinned_ref, to=to.pinned_ref, prefix=query.prefix, after=shown[-1].key
        )
    body = join_html(
        _show_heading(sides, query),
        show_form(
            "diff",
            show_field("base", "From", shorten_revision(sides.first.ref), list="names"),
            show_field("to", "To", shorten_revision(to.ref), list="names"),
            show_field("prefix", "Namespace or table", query.prefix, type="search", data_key="/"),
            button="Compare",
            hidden={"since_fork": "true" if query.since_fork else ""},
        ),
        show_names(visit.list_names()),
        show_changes(shown, base.pinned_ref, to.pinned_ref),
        show_pages(first if query.after else None, following),
    )
    return PageView(f"{shorten_revision(sides.first.ref)} → {shorten_revision(to.ref)}", body, "diff")


def _show_heading(sides: ComparedRevisions, query: DiffQuery) -> Html:
    base, to, first = sides.base, sides.to, sides.first
    names = (
        make_element("span", shorten_revision(first.ref), class_="ref"),
        make_element("span", shorten_revision(to.ref), class_="ref"),
    )
    other = _link_other_base("diff", sides, since_fork=query.since_fork, prefix=query.prefix)
    return join_html(
        make_element("h1", names[1], " since it parted from ", names[0])
        if query.since_fork
        else make_element("h1", names[0], " → ", names[1]),
        make_element(
            "p",
            link_commit(base.commit, base.via),
            " → ",
            link_commit(to.commit, to.via),
            f" · {sides.distance_text}",
            [" · ", other] if other else None,
            [" · ", make_link(make_address("merge", source=to.ref, into=first.ref), "merge…")]
            if "@" not in first.ref and first.ref != to.ref
            else None,
            class_="sub",
        ),
    )


class TableDiffQuery(msgspec.Struct, frozen=True):
    """Which table, and between which revisions."""

    key: str
    base: str
    to: str | None = None
    since_fork: bool = False
    on: str | None = None
    """Columns that identify a row, with commas between them."""
    offset: Offset = 0
    limit: Limit = ROWS_SHOWN


def show_row_diff(visit: PageRequest) -> PageView:
    """Rows of a table that differ between two revisions."""
    query: TableDiffQuery = visit.query
    key, sides = Key.parse(query.key), find_sides(visit, query.base, query.to, since_fork=query.since_fork)
    base, to = sides.base, sides.to
    names = tuple(name.strip() for name in (query.on or "").split(",") if name.strip())
    request = RowRequest(
        kind="diff",
        who=visit.ask.who,
        page_max=visit.ask.catalogue.page_max,
        ref=to.pinned_ref,
        base=base.pinned_ref,
        key=str(key),
        on=names,
        offset=query.offset,
        limit=query.limit,
    )
    diff, problem = visit.try_rows(request, ShownDiff)
    body = join_html(
        _show_table_heading(key, sides, "diff-rows", query),
        show_form(
            "diff-rows",
            show_field("base", "From", shorten_revision(sides.first.ref), list="names"),
            show_field("to", "To", shorten_revision(to.ref), list="names"),
            show_field("on", "Match rows by", query.on, list="columns", placeholder="all columns"),
            button="Compare",
            hidden={"key": key, "since_fork": "true" if query.since_fork else ""},
        ),
        show_names(visit.list_names()),
        show_names(diff.columns if diff is not None else (), "columns"),
        show_problem(problem) if problem is not None else None,
        _show_differing_rows(diff, query, base, to) if diff is not None else None,
    )
    status = 200 if problem is None else problem.http_status
    return PageView(f"Rows of {key} that differ", body, "diff", status=status)


def _show_differing_rows(diff: ShownDiff, query: TableDiffQuery, base: ResolvedRef, to: ResolvedRef) -> Html:
    changed = [" · ", make_element("span", f"{diff.changed:,} changed", class_="sign changed")]
    pages = {"key": query.key, "base": base.pinned_ref, "to": to.pinned_ref, "on": query.on}
    return join_html(
        make_element(
            "p",
            make_element("span", f"{diff.added:,} added", class_="sign added"),
            " · ",
            make_element("span", f"{diff.removed:,} removed", class_="sign removed"),
            changed if query.on else None,
        ),
        _show_other_columns("Removed columns: ", diff.removed_columns),
        _show_other_columns("Added columns: ", diff.added_columns),
        show_rows(diff.rows, empty="No rows differ.", marks_changes=True),
        show_row_pages("diff-rows", diff.rows, query.offset, query.limit, **pages),
    )


def _show_other_columns(text: str, columns: tuple[str, ...]) -> Html | None:
    """Columns of one side, which are not compared."""
    if not columns:
        return None
    return make_element("p", text, [[make_element("code", name), " "] for name in columns], class_="dim")


class FileDiffQuery(msgspec.Struct, frozen=True):
    """Which table, and between which revisions."""

    key: str
    base: str
    to: str | None = None
    since_fork: bool = False
    offset: Annotated[int, Meta(ge=0)] = 0


def show_file_diff(visit: PageRequest) -> PageView:
    """Files of a table that differ between two revisions."""
    query: FileDiffQuery = visit.query
    key, sides = Key.parse(query.key), find_sides(visit, query.base, query.to, since_fork=query.since_fork)
    base, to = sides.base, sides.to
    files = visit.work_on_rows(
        RowRequest(
            kind="file_diff",
            who=visit.ask.who,
            page_max=visit.ask.catalogue.page_max,
            ref=to.pinned_ref,
            base=base.pinned_ref,
            key=str(key),
            offset=query.offset,
        ),
        ShownFiles,
    )
    page = {"key": key, "base": base.pinned_ref, "to": to.pinned_ref}
    body = join_html(
        _show_table_heading(key, sides, "diff-files", query),
        make_element(
            "p",
            f"{count_things(files.total, 'file')} changed, {show_size(files.total_bytes)} together.",
            class_="dim",
        ),
        show_files(files, has_changes=True),
        show_pages(
            make_address("diff-files", **page) if query.offset else None,
            make_address("diff-files", **page, offset=query.offset + FILES_MAX)
            if query.offset + FILES_MAX < files.total
            else None,
        ),
    )
    return PageView(f"Files of {key} that differ", body, "diff")


def _show_table_heading(
    key: Key, sides: ComparedRevisions, page: str, query: TableDiffQuery | FileDiffQuery
) -> Html:
    base, to = sides.base, sides.to
    tabs = [
        make_element(
            "a",
            name,
            href=make_address(other, key=key, base=base.ref, to=to.ref),
            class_="tab",
            aria_current="page" if other == page else None,
        )
        for other, name in (("diff-rows", "rows"), ("diff-files", "files"))
    ]
    on = query.on if isinstance(query, TableDiffQuery) else None
    other = _link_other_base(page, sides, since_fork=query.since_fork, key=key, on=on)
    return join_html(
        make_element("h1", make_link(make_address("table", key=key, ref=to.ref), str(key))),
        make_element(
            "p",
            "between ",
            show_place(base),
            " and ",
            show_place(to),
            [" · ", other] if other else None,
            class_="sub",
        ),
        make_element(
            "nav",
            tabs,
            make_link(make_address("diff", base=base.ref, to=to.ref), "all tables", class_="tab"),
            class_="tabs",
            aria_label="Views of the difference",
        ),
    )
