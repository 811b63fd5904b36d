"""Pages that change a branch: merge, revert, restore. Each shows what it would do before there is a button.

The button does what was shown: it names the commits that the preview saw, so that it is refused if the branch
has moved since, and has an idempotency key, so that it is done once however often it is pressed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple
from uuid import uuid4

import msgspec

from penstock.errors import InvalidRequest, PenstockError
from penstock.lake.audits.calls import ListExpectations
from penstock.lake.call import describe_commit
from penstock.lake.calls import Merge, Restore, Revert
from penstock.lake.plugins import find_plugin
from penstock.model.commits import EMPTY_COMMIT_ID
from penstock.model.conflicts import Conflict
from penstock.model.expectations import Expectation
from penstock.model.keys import Key
from penstock.model.merges import ChangeSummary, KeyMerge, MergedKey, MergeMode, MergeResult
from penstock.model.references import Kind
from penstock.server.routes import HttpAnswer
from penstock.server.ui.elements import Child, Html, join_html, make_element
from penstock.server.ui.links import (
    PREFIX,
    link_commit,
    link_table,
    make_address,
    make_link,
    pin_revision,
    shorten_revision,
)
from penstock.server.ui.page_frame import PageView, redirect_to
from penstock.server.ui.page_parts import (
    count_things,
    hide_column_name,
    show_field,
    show_form,
    show_hidden,
    show_names,
    show_problem,
    show_rows,
    show_sign,
    show_table,
    show_type,
    show_version_change,
)
from penstock.server.ui.page_request import PageRequest
from penstock.server.ui.row_requests import RowRequest, ShownExpectation

EXPECTATIONS_ASKED: Final = 20
ROWS_FOUND: Final = 5
KEYS_SHOWN: Final = 200
MESSAGE_MAX_CHARS: Final = 10_000
NOBODY: Final = "web page"
"""Who makes a commit where no token says it."""


class MergePageQuery(msgspec.Struct, frozen=True):
    """What is to be merged, and into which branch."""

    source: str | None = None
    into: str | None = None
    force: tuple[str, ...] = ()
    """Tables that are taken from the source, whatever the target has."""
    drop: tuple[str, ...] = ()
    """Tables that stay as the target has them."""


def show_merge(visit: PageRequest) -> PageView:
    """What a merge would do: tables, conflicts, and what the target expects."""
    query: MergePageQuery = visit.query
    into = query.into or visit.about.default_branch
    shown: list[Child] = []
    if query.source:
        source = visit.find_place(query.source)
        try:
            keys = _choose_modes(query.force, query.drop)
            result = visit.do(Merge(source=source.pinned_ref, into=into, keys=keys, dry_run=True))
        except PenstockError as problem:
            shown.append(show_problem(problem))
        else:
            answers = _ask_expectations(visit, into, source.pinned_ref, result)
            shown += [
                _warn_of_expectations(into, source.ref, answers),
                _show_result(
                    result,
                    into,
                    source.pinned_ref,
                    since=_find_base(result, into),
                    settle=lambda key: [
                        _link_sides(result, query, into, key),
                        _link_choices(
                            "merge",
                            {"source": query.source, "into": into},
                            query,
                            key,
                            (
                                f"Take the table of {shorten_revision(source.ref)}",
                                f"Keep the table of {into}",
                            ),
                        ),
                    ],
                ),
                _show_expectations(into, source.pinned_ref, answers),
                _show_button(
                    "merge",
                    f"Merge into {into}",
                    result,
                    {
                        "source": source.pinned_ref,
                        "into": into,
                        "force": [*query.force],
                        "drop": [*query.drop],
                    },
                    f"merge {shorten_revision(source.ref)}",
                    is_doubtful=bool(answers.violated_names),
                ),
            ]
    body = join_html(
        make_element("h1", "Merge"),
        show_form(
            "merge",
            show_field("source", "What", query.source, list="names", required=True),
            show_field("into", "Into", into, list="branches", required=True),
            button="Preview",
        ),
        show_names(visit.list_names()),
        show_names(visit.list_names(Kind.BRANCH), "branches"),
        shown,
    )
    return PageView("Merge", body, "merge")


def _choose_modes(force: tuple[str, ...], drop: tuple[str, ...]) -> dict[str, KeyMerge]:
    """How tables are merged of which somebody has chosen one side."""
    return {
        str(Key.parse(key)): KeyMerge(mode=mode)
        for mode, keys in ((MergeMode.FORCE, force), (MergeMode.DROP, drop))
        for key in keys
    }


def _find_base(result: MergeResult, into: str) -> str | None:
    """The commit at which both sides parted, if there is one."""
    has_base = result.base is not None and result.base != EMPTY_COMMIT_ID
    return pin_revision(str(result.base), into) if has_base else None


def _link_sides(result: MergeResult, query: MergePageQuery, into: str, key: Key) -> Html | None:
    """To the rows that each side changed since they parted."""
    base = _find_base(result, into)
    if base is None:
        return None
    sides = ((into, pin_revision(result.head, into)), (query.source or "", query.source))
    return make_element(
        "p",
        "Rows changed on ",
        [
            make_link(
                make_address("diff-rows", key=key, base=base, to=to), shorten_revision(name), class_="more"
            )
            for name, to in sides
        ],
    )


def _link_choices(
    page: str,
    chosen: dict[str, str | None],
    query: MergePageQuery | RevertQuery,
    key: Key,
    names: tuple[str, str],
) -> Html:
    """To the preview in which one side of a table is taken."""
    force, drop = [*query.force], [*query.drop]
    take = make_address(page, **chosen, force=[*force, key], drop=drop)
    keep = make_address(page, **chosen, force=force, drop=[*drop, key])
    return make_element(
        "p", make_link(take, names[0], class_="button"), " ", make_link(keep, names[1], class_="button")
    )


class RevertQuery(msgspec.Struct, frozen=True):
    """Which commit is to be undone, and on which branch."""

    commit: str
    on: str | None = None
    force: tuple[str, ...] = ()
    """Tables that are set to their state before the commit, whatever came since."""
    drop: tuple[str, ...] = ()
    """Tables that stay as they are."""


def show_revert(visit: PageRequest) -> PageView:
    """What undoing a commit would do."""
    query: RevertQuery = visit.query
    branch = query.on or visit.about.default_branch
    try:
        commit = _find_commit(visit, query.commit)
        keys = _choose_modes(query.force, query.drop)
        result = visit.do(Revert(commit=commit, on=branch, keys=keys, dry_run=True))
    except PenstockError as problem:
        shown: Child = show_problem(problem)
    else:
        shown = [
            _show_result(
                result,
                branch,
                branch,
                is_revert=True,
                settle=lambda key: [
                    _link_choices(
                        "revert",
                        {"commit": query.commit, "on": query.on},
                        query,
                        key,
                        ("Set it to before the commit", "Leave it as it is"),
                    )
                ],
            ),
            _show_button(
                "revert",
                f"Revert on {branch}",
                result,
                {"commit": commit, "on": branch, "force": [*query.force], "drop": [*query.drop]},
                f"revert {shorten_revision(commit)}",
            ),
        ]
    body = join_html(
        make_element("h1", "Revert ", link_commit(query.commit, branch)),
        make_element(
            "p", "A new commit on ", make_element("span", branch, class_="ref"), " undoes it.", class_="sub"
        ),
        shown,
    )
    return PageView(f"Revert {shorten_revision(query.commit)}", body, "log", branch)


def _find_commit(visit: PageRequest, revision: str) -> str:
    """The id of the commit that a revision names now."""
    return revision if len(revision) == len(EMPTY_COMMIT_ID) else visit.find_place(revision).commit


class RestoreQuery(msgspec.Struct, frozen=True):
    """Which table is to be set back, and to which revision."""

    key: str
    branch: str | None = None
    to: str | None = None


def show_restore(visit: PageRequest) -> PageView:
    """What setting a table back to an earlier commit would do."""
    query: RestoreQuery = visit.query
    key, branch = Key.parse(query.key), query.branch or visit.about.default_branch
    shown: Child = None
    if query.to:
        try:
            to = visit.find_place(query.to).pinned_ref
            result = visit.do(Restore(keys=(key,), to=to, branch=branch, dry_run=True))
        except PenstockError as problem:
            shown = show_problem(problem)
        else:
            shown = [
                _show_result(result, branch, to),
                _show_button(
                    "restore",
                    f"Restore on {branch}",
                    result,
                    {"key": key, "branch": branch, "to": to},
                    f"restore {key} to {shorten_revision(query.to)}",
                ),
            ]
    body = join_html(
        make_element("h1", "Restore ", link_table(key, branch)),
        make_element(
            "p",
            "A new commit on ",
            make_element("span", branch, class_="ref"),
            " sets the table to what it was at an earlier revision. ",
            make_link(make_address("log", ref=branch, table=key), "Its log"),
            class_="sub",
        ),
        show_form(
            "restore",
            show_field("branch", "Branch", branch, list="branches", required=True),
            show_field("to", "To", query.to, placeholder=f"{branch}~1", list="names", required=True),
            button="Preview",
            hidden={"key": key},
        ),
        show_names(visit.list_names()),
        show_names(visit.list_names(Kind.BRANCH), "branches"),
        shown,
    )
    return PageView(f"Restore {key}", body, "tables", branch)


# -- previews ----------------------------------------------------------------------------------------------


def _show_result(
    result: MergeResult,
    branch: str,
    to: str,
    *,
    since: str | None = None,
    is_revert: bool = False,
    settle: Callable[[Key], list[Html | None]] | None = None,
) -> Html:
    """What would become of each table, with the conflicts, and the links that help to settle one.

    What a merge changes in a table is what came ``since`` both sides parted, unless a side of it was taken.
    """
    conflicts = len(result.conflicts)
    changed = [key for key in result.keys if key.conflicts or key.action != "unchanged"]
    if conflicts:
        text = f"{count_things(conflicts, 'conflict')}: nothing would be changed."
        state = make_element("p", text, class_="error", role="status")
    elif changed or _has_choice(result):
        text = f"No conflicts. {count_things(len(changed), 'table')} would change."
        state = make_element("p", text, class_="good", role="status")
    else:
        text = f"Nothing to do: {branch} has all of it already."
        state = make_element("p", text, class_="dim", role="status")
    base = pin_revision(result.head, branch)
    rows = [
        _show_key(key, base, to, is_revert, since if key.mode is MergeMode.NORMAL else None)
        for key in changed[:KEYS_SHOWN]
    ]
    more = len(changed) - KEYS_SHOWN
    dropped = [key for key in result.keys if key.mode is MergeMode.DROP and key.action == "unchanged"]
    return join_html(
        state,
        make_element("p", f"As {branch} has it: ", ", ".join(str(key.key) for key in dropped), class_="dim")
        if dropped
        else None,
        show_table(
            (hide_column_name("Kind"), "Table", "Format", "Version", "Change", hide_column_name("Links")),
            rows,
            empty="",
        )
        if rows
        else None,
        make_element("p", f"… and {more:,} more", class_="dim") if more > 0 else None,
        [_show_conflicts(key, base, is_revert, settle) for key in changed[:KEYS_SHOWN] if key.conflicts],
    )


def _has_choice(result: MergeResult) -> bool:
    """Whether somebody has chosen a side: then the merge is worth a commit also if no table changes."""
    return any(key.mode is not MergeMode.NORMAL for key in result.keys)


def _show_key(key: MergedKey, base: str, to: str, is_revert: bool, since: str | None) -> tuple[Child, ...]:
    rows = make_address("diff-rows", key=key.key, base=since or base, to=to)
    links = make_link(rows, "rows", class_="more") if not is_revert and _has_rows(key) else None
    if key.conflicts:
        return (
            make_element("span", "!", class_="sign removed", title="conflict"),
            link_table(key.key, base),
            show_type(key.before or key.after),
            "",
            make_element("span", "conflict", class_="error"),
            links,
        )
    sign = {"created": "+", "dropped": "-"}.get(key.action, "~")
    return (
        show_sign(sign),
        link_table(key.key, base if key.before is not None else to),
        show_type(key.after if key.after is not None else key.before),
        show_version_change(key.before, key.after),
        [_describe_change(key.change), _describe_mode(key.mode, is_revert)],
        links,
    )


def _has_rows(key: MergedKey) -> bool:
    return any(find_plugin(content) is not None for content in (key.before, key.after))


def _show_conflicts(
    key: MergedKey, base: str, is_revert: bool, settle: Callable[[Key], list[Html | None]] | None
) -> Html:
    """What is in the way of a table, and the ways out."""
    return make_element(
        "section",
        make_element("h2", "Conflict of ", link_table(key.key, base)),
        [_show_conflict(conflict, is_revert, settle is not None) for conflict in key.conflicts],
        settle(key.key) if settle is not None else None,
    )


def _show_conflict(conflict: Conflict, is_revert: bool, has_choices: bool) -> Html:
    first, *more = conflict.describe_in_revert() if is_revert else conflict.describe_in_merge()
    if has_choices:  # what programs say by a mode, the page has buttons for
        more = [line for line in more if "mode 'force'" not in line and "mode 'drop' for it" not in line]
    return make_element(
        "div",
        make_element("p", first),
        make_element("ul", [make_element("li", line) for line in more]) if more else None,
        class_="problem",
    )


def _describe_mode(mode: MergeMode, is_revert: bool) -> Html | None:
    if mode is MergeMode.NORMAL:
        return None
    text = " as it was before the commit" if is_revert else " as the source has it"
    return make_element("span", text, class_="dim")


def _describe_change(change: ChangeSummary | None) -> str:
    if change is None:
        return ""
    counts = [
        (change.files_added, "file", "added"),
        (change.files_removed, "file", "removed"),
        (change.files_changed, "file", "changed"),
        (change.rows_added, "row", "added"),
        (change.rows_removed, "row", "removed"),
    ]
    return ", ".join(f"{count_things(count, thing)} {what}" for count, thing, what in counts if count)


class _ExpectationAnswers(NamedTuple):
    """What the target expects of the tables that would change, asked of the source as it is."""

    answers: tuple[tuple[Expectation, ShownExpectation], ...] = ()
    others: int = 0
    """How many more were not asked."""
    problem: PenstockError | None = None

    @property
    def violated_names(self) -> list[str]:
        """The names of those that do not hold."""
        return [expectation.name for expectation, answer in self.answers if answer.rows.rows]


def _ask_expectations(visit: PageRequest, into: str, source: str, result: MergeResult) -> _ExpectationAnswers:
    try:
        expectations = visit.do(ListExpectations(branch=into))
    except PenstockError as problem:
        return _ExpectationAnswers(problem=problem)
    changed = {key.key for key in result.keys if key.action != "unchanged" or key.conflicts}
    concerned = [expectation for expectation in expectations if expectation.keys & changed]
    first = concerned[:EXPECTATIONS_ASKED]
    if not first:
        return _ExpectationAnswers()
    request = RowRequest(
        kind="expectations",
        who=visit.ask.who,
        page_max=visit.ask.catalogue.page_max,
        ref=source,
        sql=tuple(expectation.sql for expectation in first),
        limit=ROWS_FOUND,
    )
    answers, unasked = visit.try_rows(request, list[ShownExpectation])
    if answers is None:
        return _ExpectationAnswers(problem=unasked)
    return _ExpectationAnswers((*zip(first, answers, strict=True),), len(concerned) - len(first))


def _warn_of_expectations(into: str, source: str, answers: _ExpectationAnswers) -> Html | None:
    """What stands against a merge though there are no conflicts."""
    if not (names := answers.violated_names):
        return None
    listed, on = ", ".join(f"'{name}'" for name in names), shorten_revision(source)
    text = (
        f"The expectation {listed} does not hold on {on}: {into} refuses the merge unless it holds on the "
        "result."
        if len(names) == 1
        else f"The expectations {listed} do not hold on {on}: {into} refuses the merge unless they hold on "
        "the result."
    )
    return make_element(
        "p",
        text,
        class_="error",
        role="status",
    )


def _show_expectations(into: str, source: str, answers: _ExpectationAnswers) -> Html | None:
    """What the target expects, and what was found."""
    heading = make_element("h2", f"Expectations of {into}")
    if answers.problem is not None:
        return join_html(heading, show_problem(answers.problem))
    if not answers.answers:
        return None
    rows = [
        (make_element("b", expectation.name), make_element("code", expectation.sql), _show_answer(answer))
        for expectation, answer in answers.answers
    ]
    text = (
        f"Evaluated on {shorten_revision(source)}. "
        "They are evaluated again on the result before it is committed."
    )
    return join_html(
        heading,
        make_element("p", text, class_="sub"),
        show_table(("Name", "Query", "Answer"), rows, empty=""),
        make_element("p", f"… and {answers.others:,} more, which the merge evaluates", class_="dim")
        if answers.others
        else None,
    )


def _show_answer(answer: ShownExpectation) -> Html:
    if answer.problem:
        return make_element("div", answer.problem, class_="problem")
    if not answer.rows.rows:
        return make_element("span", "holds", class_="good")
    return make_element("div", make_element("p", "finds rows:", class_="error"), show_rows(answer.rows))


def _show_button(
    action: str,
    name: str,
    result: MergeResult,
    fields: dict[str, object],
    message: str,
    *,
    is_doubtful: bool = False,
) -> Html | None:
    """The form that does what was shown."""
    is_done = all(key.action == "unchanged" for key in result.keys) and not _has_choice(result)
    if result.conflicts or is_done:
        return None
    hidden = {**fields, "if_head": result.head, "idempotency_key": f"page-{uuid4().hex}"}
    return make_element(
        "form",
        show_hidden(hidden),
        show_field("message", "Message", message, maxlength=MESSAGE_MAX_CHARS),
        make_element("button", name, class_="danger" if is_doubtful else "primary"),
        method="post",
        action=f"{PREFIX}/{action}",
        class_="bar act",
    )


# -- what buttons do ---------------------------------------------------------------------------------------


class ChangeForm(msgspec.Struct, frozen=True):
    """What all forms that change a branch say."""

    if_head: str
    idempotency_key: str
    message: str | None = None


class MergeForm(ChangeForm, frozen=True, kw_only=True):
    """A merge that was previewed."""

    source: str
    into: str
    force: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()


class RevertForm(ChangeForm, frozen=True, kw_only=True):
    """A revert that was previewed."""

    commit: str
    on: str
    force: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()


class RestoreForm(ChangeForm, frozen=True, kw_only=True):
    """A restore that was previewed."""

    key: str
    branch: str
    to: str


def merge_branch(visit: PageRequest) -> HttpAnswer:
    form: MergeForm = visit.form
    keys = _choose_modes(form.force, form.drop)
    return _carry_out_change(
        visit, form.into, lambda said: Merge(source=form.source, into=form.into, keys=keys, **said)
    )


def revert_commit(visit: PageRequest) -> HttpAnswer:
    form: RevertForm = visit.form
    keys = _choose_modes(form.force, form.drop)
    return _carry_out_change(
        visit, form.on, lambda said: Revert(commit=form.commit, on=form.on, keys=keys, **said)
    )


def restore_table(visit: PageRequest) -> HttpAnswer:
    form: RestoreForm = visit.form
    keys = (Key.parse(form.key),)
    return _carry_out_change(
        visit, form.branch, lambda said: Restore(keys=keys, to=form.to, branch=form.branch, **said)
    )


def _carry_out_change(visit: PageRequest, branch: str, build: Callable[[dict[str, Any]], Any]) -> HttpAnswer:
    """Carry out a change, and go on to the commit that it made."""
    form: ChangeForm = visit.form
    if len(form.message or "") > MESSAGE_MAX_CHARS:
        raise InvalidRequest(f"the message is too long: at most {MESSAGE_MAX_CHARS:,} characters are allowed")
    call = build(
        {
            "said": describe_commit(form.message),
            "if_head": form.if_head,
            "idempotency_key": form.idempotency_key,
            "who": visit.ask.who or NOBODY,
        }
    )
    result: MergeResult = visit.do(call)
    if result.commit is None:
        return redirect_to(make_address("log", ref=branch))
    return redirect_to(make_address("commit", ref=pin_revision(result.commit, branch)))
