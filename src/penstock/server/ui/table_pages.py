"""Pages about tables: which there are at a revision, what one is, its rows, and queries over them."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from penstock.errors import InvalidRequest, KeyNotFound, TimedOut
from penstock.lake.calls import GetContents, ListEntries, SearchLog
from penstock.lake.plugins import find_plugin
from penstock.model.commits import Commit
from penstock.model.content import AnyContent, Namespace
from penstock.model.keys import Key
from penstock.server.ui.elements import Child, Html, join_html, make_element
from penstock.server.ui.history_pages import show_searched, show_title
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
    show_count,
    show_facts,
    show_field,
    show_form,
    show_names,
    show_pages,
    show_problem,
    show_rows,
    show_size,
    show_table,
    show_time,
    show_type,
    show_version,
)
from penstock.server.ui.page_request import PAGE_SIZE, PageRequest, ResolvedRef, show_place, show_ref_field
from penstock.server.ui.plots import plot_growth, plot_sizes
from penstock.server.ui.row_requests import (
    FILES_MAX,
    OFFSET_MAX,
    ROWS_MAX,
    RowRequest,
    ShownFile,
    ShownFiles,
    ShownRows,
    ShownTable,
)

COMMITS_SHOWN: Final = 10
SEARCHED_COMMITS: Final = 10_000
"""How many commits are read for those that changed a table."""
ROWS_SHOWN: Final = 50
SQL_MAX_CHARS: Final = 10_000
TABLES_OFFERED: Final = 10

Offset = Annotated[int, Meta(ge=0, le=OFFSET_MAX)]
Limit = Annotated[int, Meta(ge=1, le=ROWS_MAX)]


class TablesPageQuery(msgspec.Struct, frozen=True):
    """Which tables are shown."""

    ref: str | None = None
    prefix: str | None = None
    after: str | None = None


def show_tables(visit: PageRequest) -> PageView:
    """The tables and namespaces of a revision."""
    query: TablesPageQuery = visit.query
    place = visit.find_place(query.ref)
    prefix = Key.parse(query.prefix) if query.prefix else None
    after = Key.parse(query.after) if query.after else None
    call = ListEntries(at=place.commit, via=place.via, prefix=prefix, after=after, limit=PAGE_SIZE + 1)
    entries = visit.do(call) if not place.is_empty else ()
    shown = entries[:PAGE_SIZE]
    rows = [
        (
            _link_entry(entry.key, entry.content, place),
            show_type(entry.content),
            show_version(entry.content),
            None
            if find_plugin(entry.content) is None
            else [
                make_link(make_address("rows", key=entry.key, ref=place.ref), "rows", class_="more"),
                make_link(make_address("log", ref=place.ref, table=entry.key), "log", class_="more"),
            ],
        )
        for entry in shown
    ]
    pages = {"ref": query.ref, "prefix": query.prefix}
    following = None
    if len(entries) > PAGE_SIZE:
        following = make_address("tables", ref=place.pinned_ref, prefix=query.prefix, after=shown[-1].key)
    body = join_html(
        make_element("h1", "Tables of ", make_element("span", shorten_revision(place.ref), class_="ref")),
        make_element(
            "p",
            "at ",
            link_commit(place.commit, place.via),
            " · ",
            make_link(make_address("log", ref=place.ref), "log"),
            " · ",
            make_link(make_address("sql", ref=place.ref), "SQL"),
            class_="sub",
        ),
        show_form(
            "tables",
            show_ref_field("Revision", query.ref, place),
            show_field("prefix", "Namespace", query.prefix, type="search", data_key="/"),
            button="Show",
        ),
        show_names(visit.list_names()),
        show_table(
            ("Table", "Format", "Version", hide_column_name("Links")), rows, empty="There are no tables here."
        ),
        show_pages(make_address("tables", **pages) if query.after else None, following),
    )
    return PageView(f"Tables of {shorten_revision(place.ref)}", body, "tables", place.ref)


def _link_entry(key: Key, content: AnyContent, place: ResolvedRef) -> Html:
    if isinstance(content, Namespace):
        return make_link(make_address("tables", ref=place.ref, prefix=key), f"{key}.", class_="namespace")
    return link_table(key, place.ref)


def find_content(visit: PageRequest, place: ResolvedRef, key: Key) -> AnyContent:
    """What a key holds; ``KeyNotFound`` if nothing."""
    entries = visit.do(GetContents(at=place.commit, via=place.via, key=(key,))) if not place.is_empty else ()
    if not entries:
        raise KeyNotFound(
            f"there is no '{key}' at '{shorten_revision(place.ref)}'", key=str(key), ref=place.ref
        )
    return entries[0].content


class TableQuery(msgspec.Struct, frozen=True):
    """Which table, and from which file on its files are shown."""

    key: str
    ref: str | None = None
    file: Annotated[int, Meta(ge=0)] = 0


def show_one_table(visit: PageRequest) -> PageView:
    """A table: its columns, properties, versions, files and statistics."""
    query: TableQuery = visit.query
    place, key = visit.find_place(query.ref), Key.parse(query.key)
    content = find_content(visit, place, key)
    described: list[Child] = []
    if find_plugin(content) is None:
        described.append(_show_fields(content))
    else:
        request = RowRequest(
            kind="table",
            who=visit.ask.who,
            page_max=visit.ask.catalogue.page_max,
            ref=place.pinned_ref,
            key=str(key),
            offset=query.file,
        )
        table, problem = visit.try_rows(request, ShownTable)
        described.append(show_problem(problem) if problem is not None else None)
        if table is not None:
            described.append(_show_described(table, place, key, query.file))
    body = join_html(
        show_table_heading(visit, key, place, content, "table"),
        described,
        make_element("h2", "Commits that changed it"),
        _show_commits(visit, place, key, has_rows=find_plugin(content) is not None),
    )
    return PageView(str(key), body, "tables", place.ref)


def show_table_heading(
    visit: PageRequest, key: Key, place: ResolvedRef, content: AnyContent, page: str
) -> Html:
    """The name of a table, and the ways to look at it."""
    version = show_version(content)
    default = visit.about.default_branch
    parents = [
        [make_link(make_address("tables", ref=place.ref, prefix=parent), parent[-1]), "."]
        for parent in key.parents
    ]
    log = make_link(make_address("log", ref=place.ref, table=key), "log", class_="tab")
    links = [
        *(
            make_element(
                "a",
                name,
                href=make_address(name, key=key, ref=place.ref),
                class_="tab",
                aria_current="page" if name == page else None,
            )
            for name in ("table", "rows")
        ),
        log,
        make_link(make_address("sql", ref=place.ref, sql=query_rows(key)), "SQL", class_="tab"),
        make_link(
            make_address("diff-rows", key=key, base=default, to=place.ref),
            f"diff with {default}",
            class_="tab",
        )
        if place.ref != default
        else None,
        make_link(make_address("restore", key=key, branch=place.via or default), "restore…", class_="tab"),
    ]
    if find_plugin(content) is None:
        links = [log]
    return join_html(
        make_element("h1", parents, key[-1]),
        make_element(
            "p",
            f"{show_type(content)}, {version} at " if version else f"{show_type(content)} at ",
            show_place(place),
            class_="sub",
        ),
        make_element("nav", links, class_="tabs", aria_label="Views of the table"),
    )


def _show_fields(content: AnyContent) -> Html:
    """What a content says by itself, of a table that the lake only points at."""
    fields = [
        (field.name.replace("_", " "), str(value))
        for field in msgspec.structs.fields(content)
        if (value := getattr(content, field.name)) not in (None, "", (), {}, b"")
    ]
    return show_facts(fields)


def _show_described(table: ShownTable, place: ResolvedRef, key: Key, first_file: int) -> Html:
    columns = [(column.name, column.type, "" if column.nullable else "not null") for column in table.columns]
    versions = [
        (
            version.version,
            _show_iso(version.time),
            version.operation,
            version.details,
            show_size(version.size_bytes),
        )
        for version in table.versions
    ]
    files = table.files
    figures = [
        ("rows", show_count(table.rows)),
        ("files", show_count(files.total) + ("" if files.are_all else " or more")),
        ("size", show_size(files.total_bytes)),
        *((name, make_element("code", text)) for name, text in table.facts),
    ]
    return join_html(
        show_facts(figures),
        make_element("h2", "Columns"),
        show_table(
            ("Name", "Type", hide_column_name("Nulls")), columns, empty="The table has no columns yet."
        ),
        make_element("h2", "Properties") if table.properties else None,
        show_facts((name, make_element("code", text)) for name, text in table.properties)
        if table.properties
        else None,
        make_element("h2", "Versions" if versions else "Growth")
        if versions or len(table.growth) > 1
        else None,
        plot_growth(table.growth, show_size),
        show_table(("Version", "Time", "Operation", "Figures", "Size"), versions, empty="")
        if versions
        else None,
        make_element("h2", "Files", id="files"),
        plot_sizes(files.sizes, show_size),
        show_files(files),
        show_pages(
            make_address("table", key=key, ref=place.ref) + "#files" if first_file else None,
            make_address("table", key=key, ref=place.pinned_ref, file=first_file + FILES_MAX) + "#files"
            if first_file + FILES_MAX < files.total
            else None,
        ),
    )


def _show_iso(text: str) -> Html | str:
    return make_element("time", text[:19].replace("T", " "), datetime=text) if text else ""


def show_files(files: ShownFiles, *, has_changes: bool = False) -> Html:
    """Files, with what statistics say of their columns."""
    rows = [
        (
            *(
                (make_element("span", file.change, class_=f"sign {_change_name(file)}"),)
                if has_changes
                else ()
            ),
            make_element("code", file.path, class_="path"),
            file.partition,
            show_count(file.rows),
            show_size(file.size_bytes),
            _show_bounds(file),
        )
        for file in files.files
    ]
    header = ("Path", "Partition", "Rows", "Size", "Statistics")
    return show_table(
        (hide_column_name("Kind"), *header) if has_changes else header,
        rows,
        empty="No files.",
        class_="files",
    )


def _change_name(file: ShownFile) -> str:
    return {"+": "added", "-": "removed", "~": "changed"}[file.change]


def _show_bounds(file: ShownFile) -> Html | None:
    if not file.bounds:
        return None
    rows = [(bounds.column, bounds.lowest, bounds.highest, bounds.nulls) for bounds in file.bounds]
    return make_element(
        "details",
        make_element("summary", count_things(len(rows), "column")),
        show_table(("Column", "Lowest", "Highest", "Nulls"), rows, empty=""),
    )


def _show_commits(visit: PageRequest, place: ResolvedRef, key: Key, *, has_rows: bool) -> Html:
    try:
        call = SearchLog(
            ref=place.commit, via=place.via, table=key, limit=COMMITS_SHOWN, within=SEARCHED_COMMITS
        )
        search = visit.do_soon(call)
    except TimedOut:
        return make_element("p", make_link(make_address("log", ref=place.ref, table=key), "Search the log"))
    rows = [
        (
            link_commit(commit.id, place.via),
            make_link(
                make_address("commit", ref=pin_revision(commit.id, place.via)),
                show_title(commit),
                class_="title",
            ),
            commit.author,
            show_time(commit.time),
            _link_then(commit, place, key) if has_rows else None,
        )
        for commit in search.commits
    ]
    is_cut = search.reached is not None and len(rows) < COMMITS_SHOWN
    further = make_address("log", ref=place.pinned_ref, table=key, after=search.reached)
    return join_html(
        show_table(
            ("Id", "Message", "Author", "Time", hide_column_name("Links")),
            rows,
            empty="No commits are known.",
        )
        if rows or not is_cut
        else None,
        show_searched(search, place) if is_cut else None,
        make_element("p", make_link(further, "Look further" if is_cut else "Older commits"))
        if search.reached is not None
        else None,
    )


def _link_then(commit: Commit, place: ResolvedRef, key: Key) -> list[Html]:
    """To the table as a commit left it, and to what the commit did to it."""
    ref = pin_revision(commit.id, place.via)
    links = [
        make_link(make_address("table", key=key, ref=ref), "table then", class_="more"),
        make_link(make_address("rows", key=key, ref=ref), "rows then", class_="more"),
    ]
    if commit.parents:
        base = pin_revision(commit.parents[0], place.via)
        links.append(
            make_link(make_address("diff-rows", key=key, base=base, to=ref), "what changed", class_="more")
        )
    return links


class RowsQuery(msgspec.Struct, frozen=True):
    """Which rows of a table."""

    key: str
    ref: str | None = None
    where: str | None = None
    offset: Offset = 0
    limit: Limit = ROWS_SHOWN


def show_table_rows(visit: PageRequest) -> PageView:
    """Rows of a table at a revision, a page at a time."""
    query: RowsQuery = visit.query
    place, key = visit.find_place(query.ref), Key.parse(query.key)
    content = find_content(visit, place, key)
    request = RowRequest(
        kind="rows",
        who=visit.ask.who,
        page_max=visit.ask.catalogue.page_max,
        ref=place.pinned_ref,
        key=str(key),
        where=query.where or "",
        offset=query.offset,
        limit=query.limit,
    )
    rows, problem = visit.try_rows(request, ShownRows)
    body = join_html(
        show_table_heading(visit, key, place, content, "rows"),
        show_form(
            "rows",
            show_ref_field("Revision", query.ref, place),
            show_field(
                "where", "Rows where", query.where, type="search", placeholder="amount > 100", data_key="/"
            ),
            button="Show",
            hidden={"key": key},
        ),
        show_names(visit.list_names()),
        show_problem(problem) if problem is not None else None,
        _show_page_of_rows(rows, query, place) if rows is not None else None,
    )
    status = 200 if problem is None else problem.http_status
    return PageView(f"Rows of {key}", body, "tables", place.ref, status)


def _show_page_of_rows(rows: ShownRows, query: RowsQuery, place: ResolvedRef) -> Html:
    pages = {"key": query.key, "ref": place.pinned_ref, "where": query.where}
    return join_html(
        make_element("p", describe_range(rows, query.offset), class_="dim") if rows.rows else None,
        show_rows(rows, empty="No more rows." if query.offset else "No rows."),
        show_row_pages("rows", rows, query.offset, query.limit, **pages),
    )


def describe_range(rows: ShownRows, offset: int) -> str:
    """Which rows are shown, and of how many."""
    shown = f"Rows {offset + 1:,} to {offset + len(rows.rows):,}"
    return f"{shown} of {rows.total:,}" if rows.total is not None else shown


def show_row_pages(page: str, rows: ShownRows, offset: int, limit: int, **query: object) -> Html | None:
    """Links to other pages of rows. Beyond a number of rows there are none: they would all be read."""
    chosen = {**query, "limit": limit if limit != ROWS_SHOWN else None}
    following = offset + limit
    if rows.has_more and following > OFFSET_MAX:
        text = f"At most {OFFSET_MAX:,} rows are shown. Use a condition to see other rows."
        return make_element("p", text, class_="dim")
    return show_pages(
        make_address(page, **chosen) if offset else None,
        make_address(page, **chosen, offset=following) if rows.has_more else None,
    )


class SqlQuery(msgspec.Struct, frozen=True):
    """A query over tables of a revision."""

    ref: str | None = None
    sql: str | None = None


def show_sql(visit: PageRequest) -> PageView:
    """A box for a query, and what it finds. It only reads: its address can be passed on."""
    query: SqlQuery = visit.query
    place = visit.find_place(query.ref)
    shown: list[Child] = []
    if query.sql:
        if len(query.sql) > SQL_MAX_CHARS:
            raise InvalidRequest(f"the query is too long: at most {SQL_MAX_CHARS:,} characters are allowed")
        request = RowRequest(
            kind="sql",
            who=visit.ask.who,
            page_max=visit.ask.catalogue.page_max,
            ref=place.pinned_ref,
            sql=(query.sql,),
            limit=ROWS_MAX,
        )
        rows, problem = visit.try_rows(request, ShownRows)
        shown.append(show_problem(problem) if problem is not None else None)
        if rows is not None:
            more = (
                f"The first {ROWS_MAX} rows are shown."
                if rows.has_more
                else f"{count_things(len(rows.rows), 'row')}."
            )
            shown += [make_element("p", more, class_="dim"), show_rows(rows)]
    body = join_html(
        make_element("h1", "SQL at ", make_element("span", shorten_revision(place.ref), class_="ref")),
        make_element(
            "p",
            "A query by DuckDB that reads tables by their keys, at one commit. ",
            make_element("code", '"sales.orders@dev"'),
            " is a table at another revision.",
            class_="sub",
        ),
        make_element(
            "form",
            show_ref_field("Revision", query.ref, place),
            show_names(visit.list_names()),
            make_element("label", "Query", for_="sql", class_="hidden"),
            make_element(
                "textarea",
                query.sql or "",
                id="sql",
                name="sql",
                rows=6,
                maxlength=SQL_MAX_CHARS,
                spellcheck="false",
                autocapitalize="off",
                required=True,
                placeholder="select * from sales.orders limit 10",
                data_key="/",
            ),
            make_element(
                "p", make_element("button", "Run", class_="primary"), " ", make_element("kbd", "Ctrl Enter")
            ),
            method="get",
            action=make_address("sql"),
            class_="stack sql",
        ),
        shown or _first_query_links(visit, place),
    )
    return PageView("SQL", body, "sql", place.ref)


def _first_query_links(visit: PageRequest, place: ResolvedRef) -> Html | None:
    """The first tables that a query may be about, with a query that shows some rows of each."""
    if place.is_empty:
        return None
    entries = visit.do(ListEntries(at=place.commit, via=place.via, limit=PAGE_SIZE))
    keys = [entry.key for entry in entries if find_plugin(entry.content) is not None][:TABLES_OFFERED]
    links = [
        [make_link(make_address("sql", ref=place.ref, sql=query_rows(key)), str(key)), " · "] for key in keys
    ]
    more = make_link(make_address("tables", ref=place.ref), "all tables")
    return make_element("p", "Rows of ", links, more) if links else None


def query_rows(key: Key) -> str:
    """A query for the first rows of a table. A part of its name may be a word of SQL."""
    name = ".".join('"' + part.replace('"', '""') + '"' for part in key)
    return f"select * from {name} limit {ROWS_MAX}"
