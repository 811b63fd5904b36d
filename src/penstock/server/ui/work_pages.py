"""Pages of work in flight: transactions and jobs, and how they are aborted."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.errors import JobNotFound
from penstock.formats.registry import load_member
from penstock.lake.calls import Diff
from penstock.lake.transactions.answers import TransactionInfo
from penstock.lake.transactions.calls import AbortTransaction, GetTransaction, ListTransactions
from penstock.model.transactions import TransactionState
from penstock.server.routes import HttpAnswer
from penstock.server.ui.elements import Html, join_html, make_element
from penstock.server.ui.history_pages import show_changes
from penstock.server.ui.links import (
    PREFIX,
    link_commit,
    link_reference,
    make_address,
    make_link,
    pin_revision,
)
from penstock.server.ui.page_frame import PageView, redirect_to
from penstock.server.ui.page_parts import (
    show_facts,
    show_field,
    show_hidden,
    show_pages,
    show_table,
    show_time,
)
from penstock.server.ui.page_request import PAGE_SIZE, PageRequest

ID_SHOWN_CHARS = 12


class WorkQuery(msgspec.Struct, frozen=True):
    """Which of them are shown."""

    all: bool = False
    """Also those that ended."""
    after: str | None = None


def show_transactions(visit: PageRequest) -> PageView:
    """Transactions that the visitor may use."""
    query: WorkQuery = visit.query
    listed = visit.do(ListTransactions(all=query.all, after=query.after, limit=PAGE_SIZE + 1))
    shown = listed[:PAGE_SIZE]
    rows = [
        (
            make_link(make_address("transaction", id=info.id), info.id[:ID_SHOWN_CHARS], class_="id"),
            _show_state(info.state.value, info.is_late),
            link_reference(info.target),
            info.message,
            info.who,
            show_time(info.begun),
            show_time(info.ended or info.expires),
        )
        for info in shown
    ]
    following = (
        make_address("transactions", all=query.all, after=shown[-1].id) if len(listed) > PAGE_SIZE else None
    )
    body = join_html(
        make_element("h1", "Transactions"),
        _link_others("transactions", query.all),
        show_table(
            ("Id", "State", "Target", "Message", "Who", "Begun", "Ended or expires"),
            rows,
            empty="There are no transactions that you may use.",
        ),
        show_pages(make_address("transactions", all=query.all) if query.after else None, following),
    )
    return PageView("Transactions", body, "transactions")


def _show_state(state: str, is_late: bool) -> Html:
    return make_element("span", f"{state}, late" if is_late else state, class_=f"badge state-{state}")


def _link_others(page: str, shows_all: bool) -> Html:
    if shows_all:
        return make_element("p", make_link(make_address(page), "Hide those that ended"), class_="sub")
    return make_element(
        "p", make_link(make_address(page, all="true"), "Show those that ended, too"), class_="sub"
    )


class IdQuery(msgspec.Struct, frozen=True):
    """Which one."""

    id: str


def show_transaction(visit: PageRequest) -> PageView:
    """A transaction: how it stands, and what it has written."""
    query: IdQuery = visit.query
    info = visit.do(GetTransaction(id=query.id))
    is_open = info.ended is None
    body = join_html(
        make_element("h1", "Transaction ", make_element("code", info.id[:ID_SHOWN_CHARS])),
        show_facts(
            [
                ("id", make_element("code", info.id)),
                ("state", _show_state(info.state.value, info.is_late)),
                ("target", link_reference(info.target)),
                ("base", link_commit(info.base, info.target)),
                ("message", info.message),
                ("who", info.who),
                ("policy", info.policy.value),
                ("isolation", info.isolation.value),
                ("begun", show_time(info.begun)),
                ("lease", f"{info.lease_s:g} s"),
                ("expires", show_time(info.expires)),
                ("ended", show_time(info.ended)),
                ("landed as", link_commit(info.commit, info.target) if info.commit else None),
                ("why", info.why),
                *info.properties.items(),
            ]
        ),
        _show_written(visit, info) if is_open else None,
        _show_abort("transaction", info.id) if info.state is TransactionState.OPEN else None,
    )
    return PageView(f"Transaction {info.id[:ID_SHOWN_CHARS]}", body, "transactions")


def _show_written(visit: PageRequest, info: TransactionInfo) -> Html:
    """What a transaction has written so far."""
    changes = visit.do(Diff(before=info.base, before_via=info.target, to=info.branch, limit=PAGE_SIZE))
    return join_html(
        make_element("h2", "Changes"),
        show_changes(changes, pin_revision(info.base, info.target), info.branch),
    )


def _show_abort(kind: str, work_id: str) -> Html:
    return make_element(
        "form",
        show_hidden({"id": work_id}),
        show_field("why", "Why", "", maxlength=200),
        make_element("button", f"Abort this {kind}", class_="danger"),
        method="post",
        action=f"{PREFIX}/abort-{kind}",
        class_="bar act",
    )


def show_write_jobs(visit: PageRequest) -> PageView:
    """Jobs that write tables."""
    query: WorkQuery = visit.query
    listed: Any = visit.do(load_member("lake.jobs")(all=query.all, after=query.after, limit=PAGE_SIZE + 1))
    shown = listed[:PAGE_SIZE]
    rows = [
        (
            make_link(make_address("job", id=job.id), job.id[:ID_SHOWN_CHARS], class_="id"),
            _show_state(job.state.value, job.is_late),
            job.key,
            link_reference(job.branch),
            job.what,
            job.who,
            show_time(job.began),
            show_time(job.changed),
        )
        for job in shown
    ]
    following = make_address("jobs", all=query.all, after=shown[-1].id) if len(listed) > PAGE_SIZE else None
    body = join_html(
        make_element("h1", "Jobs"),
        _link_others("jobs", query.all),
        show_table(
            ("Id", "State", "Table", "Branch", "What", "Who", "Begun", "Changed"),
            rows,
            empty="No job is running.",
        ),
        show_pages(make_address("jobs", all=query.all) if query.after else None, following),
    )
    return PageView("Jobs", body, "jobs")


def show_job(visit: PageRequest) -> PageView:
    """A job."""
    query: IdQuery = visit.query
    job = _find_job(visit, query.id)
    body = join_html(
        make_element("h1", "Job ", make_element("code", job.id[:ID_SHOWN_CHARS])),
        show_facts(
            [
                ("id", make_element("code", job.id)),
                ("state", _show_state(job.state.value, job.is_late)),
                ("table", make_link(make_address("table", key=job.key, ref=job.branch), job.key)),
                ("branch", link_reference(job.branch)),
                ("works on", job.own_branch),
                ("what", job.what),
                ("application", job.application),
                ("who", job.who),
                ("begun", show_time(job.began)),
                ("expires", show_time(job.expires)),
                ("changed", show_time(job.changed)),
                ("landed as", link_commit(job.commit, job.branch) if job.commit else None),
                ("why", job.why),
            ]
        ),
        _show_abort("job", job.id) if job.state.value == "running" else None,
    )
    return PageView(f"Job {job.id[:ID_SHOWN_CHARS]}", body, "jobs")


def _find_job(visit: PageRequest, job_id: str) -> Any:
    """A job, also one that ended lately; ``JobNotFound`` if there is none."""
    listed: Any = visit.do(load_member("lake.jobs")(id=job_id, all=True, limit=1))
    if not listed:
        raise JobNotFound(f"there is no job {job_id}", id=job_id)
    return listed[0]


class AbortForm(msgspec.Struct, frozen=True):
    """What is to be aborted, and why."""

    id: str
    why: str | None = None


def abort_transaction(visit: PageRequest) -> HttpAnswer:
    form: AbortForm = visit.form
    visit.do(AbortTransaction(id=form.id, why=form.why or ""))
    return redirect_to(make_address("transaction", id=form.id))


def abort_job(visit: PageRequest) -> HttpAnswer:
    form: AbortForm = visit.form
    visit.do(load_member("lake.abort_job")(id=form.id, why=form.why or ""))
    return redirect_to(make_address("job", id=form.id))
