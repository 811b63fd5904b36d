"""A name that does not exist is answered with the one that was probably meant, if the caller may see it."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import KeyNotFound, NotFound, ReferenceNotFound
from penstock.formats.rows.arrow_types import pa
from penstock.lake import calls
from penstock.lake.lake import Lake
from penstock.lake.opener import open_lake
from penstock.lake.read_calls import ListEntries
from penstock.lake.suggestion import NAMES_MAX, add_suggestion
from penstock.model.content import Namespace
from penstock.model.keys import Key
from penstock.model.operations import Put
from penstock.model.similar_names import LISTED_MAX, describe_names, find_closest_name
from tests.server.access import ROOT, guarded, new_lake, put


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with open_lake(tmp_path / "lake") as lake:
        lake.delta.create("sales.orders", schema=pa.schema([("id", pa.int64()), ("amount", pa.float64())]))
        lake.branch("dev").create()
        yield lake


@pytest.mark.parametrize(
    ("ask", "meant"),
    [
        (lambda lake: lake.table("sales.ordres").content, "sales.orders"),
        (lambda lake: lake.table("sales.ordres").to_arrow(), "sales.orders"),
        (lambda lake: lake.table("sales.ordres").append([{"id": 1}]), "sales.orders"),
        (lambda lake: lake.table("sale.orders").snapshot(), "sales.orders"),
        (lambda lake: lake.table("Sales.Orders").snapshot(), "sales.orders"),
        (lambda lake: lake.branch("mian").log(), "main"),
        (lambda lake: lake.branch("mian").table("sales.orders").to_arrow(), "main"),
        (lambda lake: lake.merge("dve"), "dev"),
        (lambda lake: lake.restore("sales.ordres", to="main"), "sales.orders"),
    ],
)
def test_the_name_that_was_meant_is_in_the_error(lake: Lake, ask: Callable[[Lake], Any], meant: str) -> None:
    with pytest.raises(NotFound, match=f"Did you mean '{meant}'\\?") as told:
        ask(lake)
    assert told.value.details["did_you_mean"] == meant
    assert str(told.value) == told.value.message
    assert pickle.loads(pickle.dumps(told.value)).message == told.value.message


def test_a_table_that_a_revision_has_not_is_looked_for_on_the_default_branch(lake: Lake) -> None:
    lake.delta.create("sales.late", schema=pa.schema([("id", pa.int64())]))
    with pytest.raises(KeyNotFound, match="It is there at 'main'") as told:
        lake.table("sales.late", "dev").head(1)
    assert told.value.details["is_at"] == "main"
    assert pickle.loads(pickle.dumps(told.value)).message == told.value.message
    head = lake.resolve("dev")
    with pytest.raises(KeyNotFound, match=f"there is no 'sales.late' at commit {head[:8]}\n"):
        lake.diff_rows("sales.late", head, head)


def test_a_table_without_its_namespace_is_found(lake: Lake) -> None:
    with pytest.raises(KeyNotFound, match=r"Did you mean 'sales\.orders'\?"):
        lake.table("orders").head(1)


@pytest.mark.parametrize(
    "ask",
    [
        lambda lake: lake.table("sales.weather").content,
        lambda lake: lake.table("sales.x").content,
        lambda lake: lake.branch("feature").log(),
    ],
)
def test_a_name_that_is_like_no_other_is_answered_as_before(lake: Lake, ask: Callable[[Lake], Any]) -> None:
    with pytest.raises(NotFound) as told:
        ask(lake)
    assert "did you mean" not in told.value.message.lower()


def test_a_caller_is_told_of_nothing_that_he_may_not_see() -> None:
    lake = new_lake()
    mine = guarded(lake, "read:dev/*")
    problem: NotFound = ReferenceNotFound("there is no branch or tag 'secrt'", name="secrt")
    add_suggestion(problem, mine)
    assert "did_you_mean" not in problem.details
    add_suggestion(problem, guarded(lake, "read"))
    assert problem.details["did_you_mean"] == "secret"

    part = guarded(lake, "read:dev/*:sales.*")
    problem = KeyNotFound("there is no 'hr.pai'", key="hr.pai", ref="dev/etl")
    add_suggestion(problem, part)
    assert "did_you_mean" not in problem.details
    add_suggestion(problem, guarded(lake, "read"))
    assert problem.details["did_you_mean"] == "hr.pay"


def test_no_more_names_are_asked_for_than_a_page_has(lake: Lake) -> None:
    asked: list[Any] = []

    class Counted:
        page_max: int | None = None

        def do(self, call: calls.Call[Any], *_: Any) -> Any:
            asked.append(call)
            return lake.do(call)

        def close(self) -> None: ...

    lake.add_root(ROOT)
    names = [put(f"wide.t{number:05}") for number in range(2 * NAMES_MAX)]
    lake.commit([Put(Key("wide"), Namespace()), *names])
    problem = KeyNotFound("there is no 'wide.t00012x'", key="wide.t00012x", ref="main")
    add_suggestion(problem, Counted())
    assert problem.details["did_you_mean"] == "wide.t00012"
    assert [call.limit for call in asked if isinstance(call, ListEntries)] == [NAMES_MAX]


def test_a_message_lists_some_of_very_many_names() -> None:
    many = [f"column_{number}" for number in range(300)]
    told = describe_names("colum_7", many)
    assert told.startswith("; did you mean 'column_7'? There are column_0, ")
    assert told.endswith(f" and {300 - LISTED_MAX} more")
    assert describe_names("x", []) == "; there are none"
    assert find_closest_name("AMOUNT", ["id", "amount"]) == "amount"
