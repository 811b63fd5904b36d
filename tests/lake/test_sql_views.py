"""Views as entries of a lake: what a catalog of SQL asks of them, and what else is done with keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import penstock
from penstock.cli.root import penstock as root
from penstock.errors import CommitConflict, InvalidRequest, MergeConflict, NotManaged, PenstockError
from penstock.lake.lake import Lake
from penstock.lake.sql_catalog.requests import CatalogRequest, TableFacts, ViewDefinition
from penstock.lake.sql_catalog.statements import StatementCatalogue, find_landed
from penstock.lake.sql_catalog.steps import WITHOUT_PYTHON
from penstock.model.content import SqlView
from penstock.model.keys import Key
from penstock.server.nessie.contents import make_nessie_content

QUERY = ViewDefinition(
    text="SELECT id FROM t", columns='{"type":"struct","fields":[]}', catalog="lake", namespace=("s",)
)


@pytest.fixture
def lake(tmp_path: Path) -> Any:
    with penstock.open(tmp_path / "lake", create=True, author="ann") as opened:
        yield opened


def ask(lake: Lake, step: str, **fields: Any) -> Any:
    request = CatalogRequest(catalog="lake", names=("s", "v"), **fields)
    return WITHOUT_PYTHON[step](lake, request)


def write(lake: Lake, mode: str, text: str = QUERY.text, **fields: Any) -> Any:
    base = fields.pop("base", "")
    view = ViewDefinition(
        text=text,
        columns=QUERY.columns,
        catalog="lake",
        namespace=("s",),
        settings={"spark.sql.ansi.enabled": "true", "penstock.view.lake": "f" * 64},
        base=base,
    )
    return ask(lake, "write_view", mode=mode, view=view, **fields)


def view_of(lake: Lake, ref: str = "main") -> SqlView:
    content = lake.at(ref).get("s.v")
    assert isinstance(content, SqlView)
    return content


def test_a_view_is_written_listed_described_renamed_and_dropped(lake: Lake) -> None:
    assert write(lake, "replace") == {"is_absent": True}
    assert write(lake, "create", properties={"comment": "c", "owner": "x", "a": "1"}) == {}
    assert write(lake, "create") == {"is_there": True}
    first = view_of(lake)
    assert (first.catalog, first.comment, first.properties) == ("", "c", {"a": "1"})
    assert first.settings == {"spark.sql.ansi.enabled": "true"}
    assert write(lake, "upsert", "SELECT 2") == {}
    assert (view_of(lake).id, view_of(lake).sql_text) == (first.id, "SELECT 2")
    facts = ask(lake, "table")
    assert isinstance(facts, TableFacts)
    assert facts.view is not None
    assert (facts.view.text, facts.view.catalog) == ("SELECT 2", "lake")
    names = CatalogRequest(names=("s",))
    assert WITHOUT_PYTHON["tables"](lake, names) == {"tables": [], "views": ["v"]}
    assert ask(lake, "drop") == {"is_done": False}
    assert ask(lake, "rename", to=("s", "w")) == {"is_absent": True}
    assert ask(lake, "rename", to=("s", "w"), is_view=True) == {}
    assert ask(lake, "drop", is_view=True) == {"is_done": False}
    assert ask(lake, "rename", to=("s", "w"), is_view=True) == {"is_absent": True}
    assert WITHOUT_PYTHON["namespaces"](lake, CatalogRequest()) == {"namespaces": ["s"]}
    assert WITHOUT_PYTHON["namespaces"](lake, names) == {"namespaces": []}
    assert WITHOUT_PYTHON["drop_namespace"](lake, names) == {"is_filled": True}


def test_a_view_that_was_changed_since_it_was_read_is_not_replaced(lake: Lake) -> None:
    write(lake, "create")
    base = lake.resolve("main")
    write(lake, "upsert", "SELECT 2")
    with pytest.raises(CommitConflict):
        write(lake, "replace", "SELECT 3", base=base)
    assert view_of(lake).sql_text == "SELECT 2"
    lake.branch("main").put("s.other", SqlView(sql_text="SELECT 9"))
    assert write(lake, "replace", "SELECT 3", base=lake.resolve("main~1")) == {}


def test_a_statement_that_was_carried_out_is_not_carried_out_again(lake: Lake) -> None:
    statement = "a" * 32
    request = CatalogRequest(names=("s", "v"), mode="create", view=QUERY, statement=statement)
    with Lake(StatementCatalogue(lake.catalogue, statement), "ann") as asking:
        assert find_landed(asking, "write_view", request) is None
        assert WITHOUT_PYTHON["write_view"](asking, request) == {}
        assert find_landed(asking, "write_view", request) == {}
        lake.branch("main").drop("s.v")
        assert find_landed(asking, "write_view", request) == {}


@pytest.mark.parametrize(
    "fields",
    [
        {"view": None, "mode": "create"},
        {"view": QUERY, "mode": "other"},
        {"view": QUERY, "mode": "create", "properties": {"table_type": "METRIC_VIEW"}},
        {"view": QUERY, "mode": "create", "properties": {"collation": "UTF8_LCASE"}},
        {"view": QUERY, "mode": "create", "properties": {"location": "/x"}},
    ],
)
def test_what_a_lake_cannot_keep_is_refused(lake: Lake, fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        ask(lake, "write_view", **fields)
    assert lake.at("main").get("s.v") is None


def test_a_view_has_no_rows_for_other_engines_and_says_so(lake: Lake) -> None:
    write(lake, "create")
    for read in (lambda: lake.table("s.v").to_arrow(), lambda: lake.sql("SELECT * FROM s.v")):
        with pytest.raises(PenstockError, match=r"s\.v") as caught:
            read()
        assert "view" in str(caught.value)
    with pytest.raises((NotManaged, CommitConflict)):
        lake.table("s.v").append([{"id": 1}])
    lake.branch("main").put("s.v", SqlView(id=view_of(lake).id, sql_text="SELECT 1", dialect="trino"))
    with pytest.raises(InvalidRequest, match="trino"):
        ask(lake, "table")


def test_a_view_is_merged_reverted_restored_and_moved_with_its_branch(lake: Lake) -> None:
    write(lake, "create")
    lake.branch("dev").create()
    write(lake, "upsert", "SELECT 2", ref="dev")
    assert [(str(d.key), d.sign) for d in lake.diff("main", "dev")] == [("s.v", "~")]
    lake.merge("dev", "main")
    assert view_of(lake).sql_text == "SELECT 2"
    lake.revert("main", "main")
    assert view_of(lake).sql_text == QUERY.text
    lake.restore("s.v", to="main~1", branch="main")
    assert view_of(lake).sql_text == "SELECT 2"
    write(lake, "upsert", "SELECT 3")
    write(lake, "upsert", "SELECT 4", ref="dev")
    with pytest.raises(MergeConflict):
        lake.merge("dev", "main")
    assert view_of(lake).sql_text == "SELECT 3"
    with lake.transaction("main") as transaction:
        write(lake, "upsert", "SELECT 5", ref=transaction.branch)
        assert view_of(lake).sql_text == "SELECT 3"
    assert view_of(lake).sql_text == "SELECT 5"


def test_whatever_handles_keys_handles_views(lake: Lake, tmp_path: Path) -> None:
    write(lake, "create")
    write(lake, "upsert", "SELECT 2")
    lake.sweep()
    lake.sweep_tables()
    assert lake.fsck().damages == ()
    with pytest.raises(PenstockError, match=r"s\.v"):
        lake.erase("s.v")
    url = lake.url
    lake.close()
    penstock.backup(url, tmp_path / "backup", data=True)
    penstock.restore_backup(tmp_path / "backup", tmp_path / "restored")
    penstock.copy(url, tmp_path / "copied")
    for place in ("restored", "copied", "lake"):
        with penstock.open(tmp_path / place) as opened:
            assert view_of(opened).sql_text == "SELECT 2"
            assert view_of(opened, "main~1").sql_text == QUERY.text
            assert opened.fsck().damages == ()
    for command, text in ((("tables",), "SQL_VIEW"), (("tables", "--json"), "SELECT 2")):
        shown = CliRunner().invoke(root, ["--lake", str(tmp_path / "lake"), *command])
        assert text in shown.output


def test_nessies_clients_see_a_table_that_no_engine_reads(lake: Lake) -> None:
    write(lake, "create")
    seen: Any = make_nessie_content(Key("s", "v"), view_of(lake))
    assert (seen.last_checkpoint, seen.metadata_location_history) == ("sql_view", ())
