"""What notebooks show: small, escaped, and never an error."""

from __future__ import annotations

from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import pytest

import penstock
from penstock.errors import MergeConflict
from penstock.formats.rows.arrow_types import pa
from penstock.lake.lake import Lake
from penstock.model.keys import Key
from tests.rows.conftest import KEYS

XSS = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&"
NAME = "<img src=x onerror=alert(3)>\"'&"
TAGS = {"div", "strong", "span", "table", "thead", "tbody", "tr", "th", "td", "pre", "progress"}
BIG_CHARS = 80_000


class Checked(HTMLParser):
    """Accepts only the elements that Penstock writes, each closed, with styles and nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS, tag
        numbers = {"value", "max"} if tag == "progress" else set()
        assert {name for name, _ in attrs} <= {"style", "class"} | numbers
        assert all((value or "").isdigit() for name, value in attrs if name in numbers)
        assert not any("url(" in (value or "") or "<" in (value or "") for _, value in attrs)
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


def words(shown: Any) -> str:
    """The text of what a notebook shows of something."""
    return check_html(shown._repr_html_())


def check_html(code: str) -> str:
    """The text of what a notebook shows, once it has nothing that a browser would obey."""
    assert len(code) < BIG_CHARS
    checked = Checked()
    checked.feed(code)
    checked.close()
    assert checked.open == []
    return checked.words


@pytest.fixture
def hostile(lake: Lake) -> Lake:
    """A lake in which all that people name is an attempt at the reader's browser."""
    lake.author = XSS
    key = Key("evil", NAME)
    lake.table(key).write(pa.table({XSS: [XSS, None], "n": [1, 2]}), message=XSS)
    lake.branch("dev").create()
    lake.table(key, "dev").write(pa.table({XSS: [XSS], "n": [3]}), mode="overwrite", message=XSS)
    return lake


SHOWN: dict[str, Callable[[Lake, str], Any]] = {
    "lake": lambda lake, _: lake,
    "branch": lambda lake, _: lake.branch("dev"),
    "snapshot": lambda lake, _: lake.at("dev"),
    "log": lambda lake, _: lake.log("dev"),
    "diff": lambda lake, _: lake.diff("main", "dev"),
    "changes": lambda lake, _: lake.changes("dev~1"),
    "table": lambda lake, key: lake.table(key),
    "version": lambda lake, key: lake.table(key).snapshot(),
    "query": lambda lake, _: lake.at("dev").sql('select * from "t"'),
    "rows": lambda lake, key: lake.diff_rows(key, "main", "dev"),
    "transaction": lambda lake, _: lake.transaction("main", message=XSS),
    "merge": lambda lake, _: lake.merge("dev", dry_run=True),
    "history": lambda lake, key: lake.table(key, "dev").history(),
}


@pytest.mark.parametrize("what", SHOWN)
def test_names_and_values_are_shown_and_not_obeyed(hostile: Lake, what: str) -> None:
    key = str(Key("evil", NAME))
    hostile.table("t", "dev").write(pa.table({XSS: [XSS]}))
    shown = words(SHOWN[what](hostile, key))
    assert "<script>alert(1)" in shown or "<img src=x" in shown or what == "transaction"


def test_a_preview_tells_in_words_what_is_in_conflict(lake: Lake) -> None:
    lake.table("sales.own").write({"id": [1, 2]})
    lake.branch("dev").create()
    lake.table("sales.new", "dev").write({"id": [1]})
    for ref in ("main", "dev"):
        lake.table("sales.own", ref).delete("id = 1")
    result = lake.merge("dev", dry_run=True)
    shown = words(result)
    assert shown.startswith("Preview 2 keys, 1 conflict, head ")
    assert "sales.ownconflict" in shown
    assert "created" in shown
    assert "1 file added, 1 row added" in shown
    for line in result.conflicts[0].describe_in_merge():
        assert line in shown
    assert words(lake.merge("main", "dev", keys={"sales.own": "drop"})).startswith("Done")


def test_what_differs_and_what_was_done_is_told_in_words(lake: Lake) -> None:
    lake.table("sales.own").write({"id": [1, 2]})
    lake.branch("dev").create()
    lake.table("sales.own", "dev").delete("id = 1")
    shown = words(lake.diff("main", "dev"))
    assert "~sales.ownchangeddelta" in shown
    history = words(lake.table("sales.own", "dev").history())
    assert history.startswith("History 2 versions")
    assert "DELETE" in history
    assert "numDeletedRows 1" in history
    diff = words(lake.diff_rows("sales.own", "main", "dev"))
    assert diff.index("_change_type") < diff.index("id\n")


def test_a_conflict_is_shown(lake: Lake) -> None:
    lake.branch("dev").create()
    for ref in ("main", "dev"):
        lake.table("sales.new", ref).write({"id": [1]})
    with pytest.raises(MergeConflict) as refused:
        lake.merge("dev")
    assert "MergeConflict: cannot merge: 1 conflict" in words(refused.value)
    assert "'sales.new'" in words(lake.merge("dev", dry_run=True))


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS.keys())
def test_a_table_of_every_format_shows_its_first_rows(lake: Lake, key: str) -> None:
    shown = words(lake.table(key))
    assert f"Table {key} at main" in shown
    assert "amount" in shown
    assert "4.5" in shown


def test_a_lake_at_a_glance(lake: Lake) -> None:
    lake.branch("dev").create()
    shown = words(lake)
    for name in ("dev, main", *KEYS.values(), "lance", "delta", "files"):
        assert name in shown
    assert "● " in words(lake.log())
    with penstock.open("memory:") as empty:
        assert "no tables at main" in words(empty)


def test_a_merge_leads_to_what_was_merged_only_where_that_is_shown(lake: Lake) -> None:
    with lake.transaction(message="nightly") as tx:
        tx.write({"id": [1]}, "t")
    assert "● " in words(lake.log())
    assert "│" not in words(lake.log())
    assert "│ ●" in words(lake.log(all_parents=True))


def test_few_rows_of_a_query_are_counted(lake: Lake) -> None:
    assert "1 row" in words(lake.sql("select 1 as a"))
    assert "the first 10 rows" in words(lake.sql("select * from range(11)"))


def test_what_cannot_be_read_is_told_and_raises_nothing(lake: Lake) -> None:
    assert "there is no 'no.table'" in words(lake.table("no.table"))
    assert "there is no branch" in words(lake.branch("gone"))


def test_wide_and_long_tables_are_shown_in_part(lake: Lake) -> None:
    lake.table("t").write(pa.table({f"c{n}": ["x" * 1000] * 50 for n in range(60)}))
    assert "50 rows, 30 of 60 columns" in words(lake.table("t"))


def test_what_is_shown_does_not_count_as_read(lake: Lake) -> None:
    tx = lake.transaction("main", message="sum", isolation="serializable")
    for shown in (tx, tx.table("sales.orders"), tx.writes, lake.at(tx.branch), tx.table("raw.events")):
        words(shown)
    tx.table("sales.sums").write({"n": [1]})
    for key in ("sales.orders", "raw.events"):
        lake.table(key).write({"id": [9], "day": ["z"], "amount": [9.0]}, mode="append")
    assert tx.land() is not None
