"""Parts that pages are made of: tables, facts, times, sizes, links to further pages, forms."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from penstock.errors import Damaged, PenstockError
from penstock.lake.plugins import find_format, find_plugin
from penstock.model.clock import to_utc_datetime
from penstock.model.content import AnyContent
from penstock.model.references import Kind
from penstock.server.ui.elements import Child, Html, make_element
from penstock.server.ui.links import link_reference, make_address, make_link
from penstock.server.ui.row_requests import ShownRows

LINE_MAX_CHARS = 48
"""A text of more characters has several lines. A list is cut, and shown whole to who points at it."""
SIGNS = {"+": "added", "-": "removed", "~": "changed", "=": "same"}


def show_table(
    header: Sequence[Child], rows: Iterable[Sequence[Child]], *, empty: str, class_: str = ""
) -> Html:
    """A table without the columns that have nothing in any row; a sentence where there is nothing."""
    cells = [list(row) for row in rows]
    if not cells:
        return make_element("p", empty, class_="dim empty")
    filled = [n for n in range(len(header)) if any(row[n] not in (None, "", [], ()) for row in cells)]
    lines = [make_element("tr", [make_element("td", row[n]) for n in filled]) for row in cells]
    return make_element(
        "div",
        make_element(
            "table",
            make_element(
                "thead", make_element("tr", [make_element("th", header[n], scope="col") for n in filled])
            ),
            make_element("tbody", lines),
        ),
        class_=f"scroll {class_}".strip(),
    )


def hide_column_name(name: str) -> Html:
    """The name of a column that needs none for who sees it."""
    return make_element("span", name, class_="hidden")


def show_facts(facts: Iterable[tuple[str, Child]]) -> Html:
    """Names and what each is; those without a value are left out."""
    pairs = [
        (make_element("dt", name), make_element("dd", value))
        for name, value in facts
        if value not in (None, "", [], ())
    ]
    return make_element("dl", pairs, class_="facts")


def show_time(moment: datetime | None) -> Html | None:
    """A time in UTC. The page's script tells how long ago that is."""
    if moment is None:
        return None
    return make_element("time", f"{moment:%Y-%m-%d %H:%M:%S}", datetime=moment.isoformat())


def show_time_us(time_us: int) -> Html | None:
    return show_time(to_utc_datetime(time_us)) if time_us else None


def show_size(count_bytes: float | None) -> str:
    """A number of bytes."""
    if count_bytes is None:
        return ""
    units = ["B", "KiB", "MiB", "GiB", "TiB"]
    while count_bytes >= 1024 and len(units) > 1:
        count_bytes /= 1024
        del units[0]
    return f"{count_bytes:.1f}".removesuffix(".0") + f" {units[0]}"


def show_count(count: int | None) -> str:
    return "" if count is None else f"{count:,}"


def count_things(count: int, thing: str) -> str:
    """``1 table``, ``2 tables``."""
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"


def show_problem(problem: PenstockError) -> Html:
    """What stands against a part of a page, in its place."""
    first, *rest = problem.message.split("\n")
    return make_element(
        "div",
        make_element("p", first),
        [make_element("p", line.strip(), class_="dim") for line in rest],
        class_="problem",
        role="alert",
    )


def show_sign(sign: str) -> Html:
    return make_element("span", sign, class_=f"sign {SIGNS.get(sign, 'same')}", title=SIGNS.get(sign, ""))


def show_type(content: AnyContent | None) -> str:
    """The format of a table, or what else a key holds."""
    if content is None:
        return ""
    declared = find_format(content)
    return content.type.lower().replace("_", " ") if declared is None else declared.name


def show_version(content: AnyContent | None) -> str:
    """The version of a table that the lake manages; empty for all others."""
    plugin = find_plugin(content)
    if plugin is None or content is None:
        return ""
    try:
        return plugin.describe_version(content)
    except Damaged:
        return "damaged"


def show_version_change(before: AnyContent | None, after: AnyContent | None) -> str:
    """The version that a table had and the one that it has."""
    old, new = show_version(before), show_version(after)
    if before is not None and after is not None and before.id != after.id:
        return f"{new} dropped and created again".strip()
    if not old or not new:
        return new or old
    return f"{old} → {new}" if old != new else f"{old} → other {new}"


def show_references(names: Iterable[tuple[Kind, str]]) -> list[Html]:
    """The branches and tags at a commit."""
    return [
        make_element("span", link_reference(name), class_=f"badge {kind.value}", title=kind.value)
        for kind, name in names
    ]


def show_pages(first: str | None, following: str | None, next_text: str = "Next page »") -> Html | None:
    """Links to the first page of a list and to the next one."""
    links = [
        make_link(first, "« First page", class_="button") if first else None,
        make_link(following, next_text, class_="button next") if following else None,
    ]
    return make_element("nav", links, class_="pages", aria_label="Pages of the list") if any(links) else None


def show_field(name: str, label: str, value: object = "", **attributes: str | bool | int | None) -> Html:
    """A field of a form, with its label.

    ``attributes`` are those of HTML's ``input``, an open set: no type of ours could list them.
    """
    return make_element(
        "label",
        make_element("span", label),
        make_element("input", name=name, value="" if value is None else str(value), **attributes),
    )


def show_form(page: str, *fields: Child, button: str, hidden: dict[str, object] | None = None) -> Html:
    """A form that leads to a page; it changes nothing."""
    return make_element(
        "form",
        show_hidden(hidden or {}),
        fields,
        make_element("button", button),
        method="get",
        action=make_address(page),
        class_="bar",
    )


def show_hidden(values: dict[str, object]) -> list[Html]:
    return [
        make_element("input", type="hidden", name=name, value=str(value))
        for name, several in values.items()
        for value in (several if isinstance(several, list) else [several])
        if value not in (None, "")
    ]


def show_names(names: Sequence[str], list_id: str = "names") -> Html:
    """The names that a field with this list offers."""
    return make_element("datalist", [make_element("option", value=name) for name in names], id=list_id)


def show_rows(shown: ShownRows, *, empty: str = "No rows.", marks_changes: bool = False) -> Html:
    """Rows as a table; ``marks_changes`` says that the first column tells what became of each row."""
    if not shown.columns:
        return make_element("p", "The table has no columns yet.", class_="dim empty")
    header = [
        make_element(
            "th",
            hide_column_name("Change")
            if marks_changes and n == 0
            else [make_element("span", column.name), make_element("small", column.type)],
            scope="col",
            class_="number" if column.is_number else None,
        )
        for n, column in enumerate(shown.columns)
    ]
    lines = [
        make_element("tr", _show_cells(shown, row, marks_changes), class_=_change_class(row, marks_changes))
        for row in shown.rows
    ]
    cut = shown.columns_total - len(shown.columns) + (1 if marks_changes else 0)
    return make_element(
        "div",
        make_element(
            "div",
            make_element(
                "table", make_element("thead", make_element("tr", header)), make_element("tbody", lines)
            ),
            class_="scroll rows",
            tabindex=0,
        ),
        make_element("p", empty, class_="dim empty") if not lines else None,
        make_element("p", f"{count_things(cut, 'more column')} not shown.", class_="dim")
        if cut > 0
        else None,
    )


CHANGES = {
    "insert": ("+", "added"),
    "delete": ("-", "removed"),
    "update_preimage": ("~", "before"),
    "update_postimage": ("~", "after"),
}


def _change_class(row: Sequence[str | None], marks_changes: bool) -> str | None:
    return CHANGES.get(row[0] or "", ("", ""))[1] if marks_changes else None


def _show_cells(shown: ShownRows, row: Sequence[str | None], marks_changes: bool) -> list[Html]:
    cells = []
    for n, (column, value) in enumerate(zip(shown.columns, row, strict=True)):
        if marks_changes and n == 0:
            sign, what = CHANGES.get(value or "", ("", ""))
            cells.append(make_element("th", sign, make_element("span", what, class_="what"), scope="row"))
        elif value is None:
            cells.append(make_element("td", "null", class_="null"))
        else:
            is_long = len(value) > LINE_MAX_CHARS
            has_lines = is_long and "string" in column.type and "<" not in column.type
            class_ = "number" if column.is_number else "long" if has_lines else None
            cells.append(
                make_element("td", value, class_=class_, title=value if is_long and not has_lines else None)
            )
    return cells
