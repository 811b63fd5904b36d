"""Pages of differences between two revisions: by tables, by files and by rows."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from penstock.errors import TimedOut
from penstock.lake.calls import Compare, Diff
from penstock.model.keys import Key
from penstock.server.ui.elements import Html, element, join
from penstock.server.ui.frame import PageView
from penstock.server.ui.history_pages import show_changes
from penstock.server.ui.links import address, link, link_commit, shorten
from penstock.server.ui.parts import (
    count_things,
    show_field,
    show_form,
    show_names,
    show_pages,
    show_problem,
    show_rows,
    show_size,
)
from penstock.server.ui.row_requests import FILES_MAX, RowRequest, ShownDiff, ShownFiles
from penstock.server.ui.table_pages import ROWS_SHOWN, Limit, Offset, show_files, show_row_pages
from penstock.server.ui.visit import PAGE_SIZE, ResolvedRef, Visit, show_place


class DiffQuery(msgspec.Struct, frozen=True):
    """Which revisions, and which of their tables."""

    base: str | None = None
    to: str | None = None
    prefix: str | None = None
    after: str | None = None


def show_diff(visit: Visit) -> PageView:
    """Tables that differ between two revisions."""
    query: DiffQuery = visit.query
    base, to = visit.find_place(query.base), visit.find_place(query.to)
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
    first = address("diff", base=base.ref, to=to.ref, prefix=query.prefix)
    following = None
    if len(changes) > PAGE_SIZE:
        following = address(
            "diff", base=base.pinned_ref, to=to.pinned_ref, prefix=query.prefix, after=shown[-1].key
        )
    body = join(
        _show_heading(visit, base, to),
        show_form(
            "diff",
            show_field("base", "From", shorten(base.ref), list="names"),
            show_field("to", "To", shorten(to.ref), list="names"),
            show_field("prefix", "Namespace or table", query.prefix, type="search", data_key="/"),
            button="Compare",
        ),
        show_names(visit.list_names()),
        show_changes(shown, base.pinned_ref, to.pinned_ref),
        show_pages(first if query.after else None, following),
    )
    return PageView(f"{shorten(base.ref)} … {shorten(to.ref)}", body, "diff")


def _show_heading(visit: Visit, base: ResolvedRef, to: ResolvedRef) -> Html:
    try:
        relation = visit.do_soon(Compare(one=to.pinned_ref, other=base.pinned_ref))
        distance = f"is {count_things(relation.ahead, 'commit')} ahead, {relation.behind:,} behind"
    except TimedOut:
        distance = f"is many commits away from {shorten(base.ref)}"
    return join(
        element(
            "h1",
            element("span", shorten(base.ref), class_="ref"),
            " … ",
            element("span", shorten(to.ref), class_="ref"),
        ),
        element(
            "p",
            link_commit(base.commit, base.via),
            " … ",
            link_commit(to.commit, to.via),
            f" · {shorten(to.ref)} {distance}",
            [" · ", link(address("merge", source=to.ref, into=base.ref), "merge…")]
            if "@" not in base.ref and base.ref != to.ref
            else None,
            class_="sub",
        ),
    )


class TableDiffQuery(msgspec.Struct, frozen=True):
    """Which table, and between which revisions."""

    key: str
    base: str
    to: str | None = None
    on: str | None = None
    """Columns that identify a row, with commas between them."""
    offset: Offset = 0
    limit: Limit = ROWS_SHOWN


def show_row_diff(visit: Visit) -> PageView:
    """Rows of a table that differ between two revisions."""
    query: TableDiffQuery = visit.query
    key, base, to = Key.parse(query.key), visit.find_place(query.base), visit.find_place(query.to)
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
    body = join(
        _show_table_heading(key, base, to, "diff-rows"),
        show_form(
            "diff-rows",
            show_field("base", "From", shorten(base.ref), list="names"),
            show_field("to", "To", shorten(to.ref), list="names"),
            show_field("on", "Match rows by", query.on, list="columns", placeholder="all columns"),
            button="Compare",
            hidden={"key": key},
        ),
        show_names(visit.list_names()),
        show_names(diff.columns if diff is not None else (), "columns"),
        show_problem(problem) if problem is not None else None,
        _show_differing_rows(diff, query, base, to) if diff is not None else None,
    )
    status = 200 if problem is None else problem.http_status
    return PageView(f"Rows of {key} that differ", body, "diff", status=status)


def _show_differing_rows(diff: ShownDiff, query: TableDiffQuery, base: ResolvedRef, to: ResolvedRef) -> Html:
    changed = [" · ", element("span", f"{diff.changed:,} changed", class_="sign changed")]
    pages = {"key": query.key, "base": base.pinned_ref, "to": to.pinned_ref, "on": query.on}
    return join(
        element(
            "p",
            element("span", f"{diff.added:,} added", class_="sign added"),
            " · ",
            element("span", f"{diff.removed:,} removed", class_="sign removed"),
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
    return element("p", text, [[element("code", name), " "] for name in columns], class_="dim")


class FileDiffQuery(msgspec.Struct, frozen=True):
    """Which table, and between which revisions."""

    key: str
    base: str
    to: str | None = None
    offset: Annotated[int, Meta(ge=0)] = 0


def show_file_diff(visit: Visit) -> PageView:
    """Files of a table that differ between two revisions."""
    query: FileDiffQuery = visit.query
    key, base, to = Key.parse(query.key), visit.find_place(query.base), visit.find_place(query.to)
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
    body = join(
        _show_table_heading(key, base, to, "diff-files"),
        element(
            "p",
            f"{count_things(files.total, 'file')} changed, {show_size(files.total_bytes)} together.",
            class_="dim",
        ),
        show_files(files, has_changes=True),
        show_pages(
            address("diff-files", **page) if query.offset else None,
            address("diff-files", **page, offset=query.offset + FILES_MAX)
            if query.offset + FILES_MAX < files.total
            else None,
        ),
    )
    return PageView(f"Files of {key} that differ", body, "diff")


def _show_table_heading(key: Key, base: ResolvedRef, to: ResolvedRef, page: str) -> Html:
    tabs = [
        element(
            "a",
            name,
            href=address(other, key=key, base=base.ref, to=to.ref),
            class_="tab",
            aria_current="page" if other == page else None,
        )
        for other, name in (("diff-rows", "rows"), ("diff-files", "files"))
    ]
    return join(
        element("h1", link(address("table", key=key, ref=to.ref), str(key))),
        element(
            "p",
            "between ",
            show_place(base),
            " and ",
            show_place(to),
            class_="sub",
        ),
        element(
            "nav",
            tabs,
            link(address("diff", base=base.ref, to=to.ref), "all tables", class_="tab"),
            class_="tabs",
            aria_label="Views of the difference",
        ),
    )
