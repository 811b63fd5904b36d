"""The routes of the page, and how its requests are read and refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from penstock.errors import Denied, NotFound, PenstockError, Unauthenticated
from penstock.lake.suggestion import add_suggestion
from penstock.server.access import AccessGate
from penstock.server.routes import Api, HttpAnswer, Route, RouteRequest
from penstock.server.ui import (
    change_pages,
    diff_pages,
    forms,
    history_pages,
    lake_pages,
    table_pages,
    work_pages,
)
from penstock.server.ui.links import PREFIX, make_address
from penstock.server.ui.page_frame import (
    PageView,
    redirect_to,
    render_error,
    render_login,
    render_page,
    serve_asset,
)
from penstock.server.ui.page_request import PageRequest
from penstock.server.ui.session import (
    TokenForm,
    add_session,
    find_page,
    find_token,
    require_own_form,
    sign_in,
    sign_out,
)


def make_ui_api(gate: AccessGate) -> Api:
    """The page as an API of the server. ``gate`` says whose token somebody signs in with."""
    return Api(
        name="ui",
        prefix=PREFIX,
        title="The page",
        description="Pages for people, in a browser.",
        routes=(
            *PAGES,
            *ACTIONS,
            _make_public_route("GET", "/assets/{name}", lambda ask: serve_asset(ask.path["name"])),
            _make_public_route("GET", "/login", lambda _: redirect_to(make_address(""))),
            _make_public_route("POST", "/login", lambda ask: sign_in(ask, gate), TokenForm),
            _make_public_route("POST", "/logout", sign_out),
        ),
        codec=forms,
        error=_render_error,
        error_schema=None,
        strict_query=False,
        add_credentials=add_session,
    )


def _render_error(error: PenstockError, headers: Mapping[str, str]) -> HttpAnswer:
    if not isinstance(error, Unauthenticated):
        return render_error(error, find_page(headers))
    token = find_token(headers)
    came_by_link = headers.get("sec-fetch-site") == "cross-site" and not token
    return render_login(error.message if token else "", goes_on=came_by_link)


def _make_page_route(
    path: str, show: Callable[[PageRequest], PageView], query: Any = None, *, works_on_rows: bool = False
) -> Route:
    """A page that shows something."""

    def handle_request(ask: RouteRequest) -> HttpAnswer:
        if (
            ask.headers.get("sec-fetch-site") == "cross-site"
            and ask.headers.get("sec-fetch-mode") != "navigate"
        ):
            raise Denied("pages of other sites cannot use this page")
        try:
            return render_page(show(PageRequest(ask)), ask.who)
        except NotFound as problem:
            add_suggestion(problem, ask.catalogue)
            if not (meant := _find_meant(path, ask.query, problem)):
                raise
            return render_error(problem, find_page(ask.headers), meant)

    return Route(
        method="GET",
        path=path,
        handle=handle_request,
        summary=(show.__doc__ or "").strip(),
        query=query,
        works_on_rows=works_on_rows,
        produces="text/html",
    )


def _find_meant(path: str, query: Any, problem: NotFound) -> str:
    """The address of the same page with the name that was probably meant; empty if none is known."""
    wrong, right = (
        problem.details.get("key", problem.details.get("name")),
        problem.details.get("did_you_mean"),
    )
    if right is None:
        wrong, right = problem.details.get("ref"), problem.details.get("is_at")
    fields = msgspec.structs.asdict(query) if right is not None and query is not None else {}
    if wrong not in fields.values():
        return ""
    chosen = {name: "false" if value is False else value for name, value in fields.items()}
    return make_address(path.strip("/"), **{name: right if v == wrong else v for name, v in chosen.items()})


def _make_action_route(path: str, act: Callable[[PageRequest], HttpAnswer], form: Any) -> Route:
    """What a button does."""

    return Route(
        method="POST",
        path=path,
        handle=lambda ask: act(PageRequest(ask)),
        summary=(act.__doc__ or "").strip(),
        body=form,
        media_types=(forms.MEDIA_TYPE,),
        check_headers=require_own_form,
        is_write=True,
    )


def _make_public_route(
    method: str, path: str, handle: Callable[[RouteRequest], HttpAnswer], form: Any = None
) -> Route:
    return Route(
        method=method,
        path=path,
        handle=handle,
        summary="",
        body=form,
        body_required=False,
        media_types=(forms.MEDIA_TYPE,),
        check_headers=require_own_form if method == "POST" else None,
        is_public=True,
    )


PAGES: Final = (
    _make_page_route("/", lake_pages.show_overview),
    _make_page_route("/branches", lake_pages.show_branches, lake_pages.NamesQuery),
    _make_page_route("/tags", lake_pages.show_tags, lake_pages.NamesQuery),
    _make_page_route("/expectations", lake_pages.show_expectations, lake_pages.BranchPageQuery),
    _make_page_route("/maintenance", lake_pages.show_maintenance),
    _make_page_route("/log", history_pages.show_log, history_pages.LogPageQuery),
    _make_page_route("/commit", history_pages.show_commit, history_pages.CommitQuery),
    _make_page_route("/reference", history_pages.show_events, history_pages.EventQuery),
    _make_page_route("/tables", table_pages.show_tables, table_pages.TablesPageQuery),
    _make_page_route("/table", table_pages.show_one_table, table_pages.TableQuery, works_on_rows=True),
    _make_page_route("/rows", table_pages.show_table_rows, table_pages.RowsQuery, works_on_rows=True),
    _make_page_route("/sql", table_pages.show_sql, table_pages.SqlQuery, works_on_rows=True),
    _make_page_route("/diff", diff_pages.show_diff, diff_pages.DiffQuery),
    _make_page_route("/diff-rows", diff_pages.show_row_diff, diff_pages.TableDiffQuery, works_on_rows=True),
    _make_page_route("/diff-files", diff_pages.show_file_diff, diff_pages.FileDiffQuery, works_on_rows=True),
    _make_page_route("/merge", change_pages.show_merge, change_pages.MergePageQuery, works_on_rows=True),
    _make_page_route("/revert", change_pages.show_revert, change_pages.RevertQuery),
    _make_page_route("/restore", change_pages.show_restore, change_pages.RestoreQuery),
    _make_page_route("/transactions", work_pages.show_transactions, work_pages.WorkQuery),
    _make_page_route("/transaction", work_pages.show_transaction, work_pages.IdQuery),
    _make_page_route("/jobs", work_pages.show_write_jobs, work_pages.WorkQuery),
    _make_page_route("/job", work_pages.show_job, work_pages.IdQuery),
)
"""Every page. None of them changes anything."""

ACTIONS: Final = (
    _make_action_route("/merge", change_pages.merge_branch, change_pages.MergeForm),
    _make_action_route("/revert", change_pages.revert_commit, change_pages.RevertForm),
    _make_action_route("/restore", change_pages.restore_table, change_pages.RestoreForm),
    _make_action_route("/abort-transaction", work_pages.abort_transaction, work_pages.AbortForm),
    _make_action_route("/abort-job", work_pages.abort_job, work_pages.AbortForm),
)
