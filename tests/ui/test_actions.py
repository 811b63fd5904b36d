"""What the buttons of the page do: what was shown before, once, and only if nothing moved since."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import unquote

import pytest

from penstock.formats.rows.arrow_types import pa
from penstock.lake.lake import Lake
from penstock.server.ui.page_parts import show_size
from tests.ui.conftest import Page, Site, orders, serve


@pytest.fixture
def site(own_lake: Lake) -> Iterator[Site]:
    with serve(own_lake) as served:
        yield served


def test_a_merge_lands_as_it_was_shown(site: Site) -> None:
    preview = site.get("merge?source=dev&into=main")
    form = preview.fields("/ui/merge")
    site.lake.table("sales.orders", "dev").append(orders(-7.0), message="later")
    reply = site.post("merge", {**form, "message": "take it over"})
    assert reply.status == 303
    page = site.get(unquote(reply.headers["location"]))
    assert "take it over" in page.text
    assert site.lake.table("sales.orders").count("amount < 0") == 2  # without what came later
    head = site.lake.branch().head
    assert (
        site.post("merge", {**form, "message": "take it over"}).headers["location"]
        == reply.headers["location"]
    )
    assert site.lake.branch().head == head


def test_a_branch_that_moved_is_not_merged_into(site: Site) -> None:
    form = site.get("merge?source=dev&into=main").fields("/ui/merge")
    site.lake.table("sales.orders").append(orders(1.0))
    reply = site.post("merge", form)
    assert reply.status == 409
    assert b"<h1>Conflict</h1>" in reply.body


def test_the_rows_of_a_merge_are_those_that_the_source_changed(site: Site) -> None:
    """Not those that the target changed meanwhile, which the merge leaves as they are."""
    site.lake.table("sales.orders").append(orders(70.0, 80.0, 90.0, day="2026-11-09"))
    page = site.get("merge?source=dev&into=main")
    assert "2 rows added" in page.text
    rows = page.find_link("diff-rows")
    assert rows is not None
    assert "2 added · 0 removed" in site.get(rows).text


def test_a_button_that_was_refused_leads_back_to_its_preview(site: Site) -> None:
    address = "/ui/merge?source=dev&into=main"
    form = site.get(address).fields("/ui/merge")
    site.lake.table("sales.orders").append(orders(1.0))
    refused = Page(site.post("merge", form, referer=site.server.url + address))
    assert refused.status == 409
    assert address in refused.links
    foreign = Page(site.post("merge", form, referer="http://elsewhere.example/ui/merge"))
    assert all("elsewhere" not in link for link in foreign.links)
    assert "Back to the page before" not in foreign.text


def test_a_conflict_is_shown_and_has_no_button(site: Site) -> None:
    for branch in ("main", "dev"):
        site.lake.table("sales.orders", branch).delete("day = '2026-11-01'")
    page = site.get("merge?source=dev&into=main")
    assert "conflict" in page.text
    assert "nothing would be changed" in page.text
    assert page.fields("/ui/merge") == {}
    assert "mode 'force'" not in page.text, "the page has buttons for that"
    sides = [link for link in page.links if "diff-rows" in link and "&base=main%40" in link][-2:]
    ours, theirs = (site.get(side).text for side in sides)
    assert "0 added · 3 removed" in ours
    assert "2 added · 3 removed" in theirs, "each side since they parted"


@pytest.mark.parametrize(("side", "rows"), [("force", 3), ("drop", 1)])
def test_a_conflict_is_settled_by_taking_one_side(site: Site, side: str, rows: int) -> None:
    for branch in ("main", "dev"):
        site.lake.table("sales.orders", branch).delete("day = '2026-11-01'")
    page = site.get("merge?source=dev&into=main")
    chosen = page.find_link(f"{side}=sales.orders")
    assert chosen is not None, page.text
    preview = site.get(chosen)
    assert "conflicts" not in preview.text.replace("No conflicts", "")
    assert ("As main has it: sales.orders" in preview.text) == (side == "drop")
    reply = site.post("merge", preview.fields("/ui/merge"))
    assert reply.status == 303, reply.body
    assert site.lake.table("sales.orders").count() == rows
    assert "Nothing to do" in site.get("merge?source=dev&into=main").text


def test_what_the_target_expects_is_asked_before_the_button(site: Site) -> None:
    site.lake.expect("no negative amounts", "select * from sales.orders where amount < 0")
    site.lake.expect("orders have ids", "select * from sales.orders where id is null")
    page = site.get("merge?source=dev&into=main")
    assert re.search(r"no negative amounts .* finds rows: .* -5.0 .* orders have ids .* holds", page.text), (
        page.text
    )
    assert "The expectation 'no negative amounts' does not hold on dev: main refuses the merge" in page.text
    reply = site.post("merge", page.fields("/ui/merge"))
    assert reply.status == 409
    assert b"no negative amounts" in reply.body
    listed = site.get("expectations")
    assert "select * from sales.orders where amount &lt; 0" in listed.reply.body.decode()


def test_a_bad_load_is_reverted(site: Site) -> None:
    commit = site.lake.branch("dev").head
    link = site.get(f"commit?ref=dev@{commit}").find_link("/ui/revert")
    assert link is not None
    preview = site.get(link)
    assert "2 rows removed" in preview.text
    reply = site.post("revert", preview.fields("/ui/revert"))
    assert reply.status == 303
    assert site.lake.table("sales.orders", "dev").count() == 4


@pytest.mark.parametrize(("side", "rows"), [("force", 0), ("drop", 3)])
def test_a_conflict_of_a_revert_is_settled_per_table(site: Site, side: str, rows: int) -> None:
    """The commit created a table that others have written to since."""
    site.lake.create_table("sales.returns", data=orders(1.0), message="by mistake")
    commit = site.lake.branch().head
    site.lake.table("sales.returns").append(orders(2.0, 3.0))
    page = site.get(f"revert?commit={commit}")
    assert "1 conflict: nothing would be changed" in page.text
    assert page.fields("/ui/revert") == {}
    chosen = page.find_link(f"{side}=sales.returns")
    assert chosen is not None
    reply = site.post("revert", site.get(chosen).fields("/ui/revert"))
    assert reply.status == 303, reply.body
    table = site.lake.table("sales.returns")
    assert (table.count() if table.exists else 0) == rows


def test_a_table_is_restored(site: Site) -> None:
    preview = site.get("restore?key=sales.orders&to=v1&branch=main")
    reply = site.post("restore", preview.fields("/ui/restore"))
    assert reply.status == 303
    assert site.lake.table("sales.orders").count() == 3
    assert "Nothing to do" in site.get("restore?key=sales.orders&to=v1&branch=main").text


def test_a_transaction_is_aborted(site: Site) -> None:
    transaction = site.lake.transaction(message="a load")
    transaction.table("sales.orders").append(orders(5.0))
    assert "a load" in site.get("transactions").text
    page = site.get(f"transaction?id={transaction.id}")
    assert "sales.orders" in page.text
    assert "open" in page.text
    reply = site.post("abort-transaction", {"id": transaction.id, "why": "stuck"})
    assert reply.status == 303
    page = site.get(f"transaction?id={transaction.id}")
    assert "aborted" in page.text
    assert "stuck" in page.text
    assert page.fields("/ui/abort-transaction") == {}


def test_a_job_is_aborted(site: Site) -> None:
    job = begin_job(site.lake)
    assert "raw.events" in site.get("jobs").text
    page = site.get(f"job?id={job}")
    assert "running" in page.text
    assert site.post("abort-job", page.fields("/ui/abort-job") | {"why": "stuck"}).status == 303
    assert "aborted" in site.get(f"job?id={job}").text
    assert "aborted" in site.get("jobs?all=true").text


def begin_job(lake: Lake) -> str:
    from penstock.formats.files.lake.calls import BeginJob
    from penstock.model.keys import Key

    job_id = "0" * 31 + "1"
    lake.do(BeginJob(id=job_id, fence=job_id, key=Key.parse("raw.events"), what="load", who="etl"))
    return job_id


def test_a_reader_gets_no_further_than_the_preview(own_lake: Lake) -> None:
    with serve(own_lake, with_tokens=True) as site:
        token = site.create_token("read")
        page = site.get("merge?source=dev&into=main", token)
        assert "may not change 'main'" in page.text
        assert page.fields("/ui/merge") == {}
        form = {"source": "dev", "into": "main", "if_head": own_lake.branch().head, "idempotency_key": "k"}
        assert site.post("merge", form, token).status == 403
        assert site.post("abort-job", {"id": begin_job(own_lake)}, token).status in (403, 404)


@pytest.mark.parametrize(
    ("action", "form"),
    [
        ("merge", {}),
        ("merge", {"source": "dev"}),
        ("merge", {"source": "dev", "into": "main", "if_head": "x", "idempotency_key": "k"}),
        (
            "merge",
            {
                "source": "dev",
                "into": "main",
                "if_head": "main",
                "idempotency_key": "k",
                "message": "m" * 10_001,
            },
        ),
        ("revert", {"commit": "x", "on": "main", "if_head": "main", "idempotency_key": "k"}),
        ("restore", {"key": "..", "to": "v1", "branch": "main", "if_head": "main", "idempotency_key": "k"}),
        ("abort-transaction", {}),
    ],
)
def test_a_form_that_is_wrong_is_refused_by_a_page(site: Site, action: str, form: dict[str, str]) -> None:
    head = site.lake.branch().head
    reply = site.post(action, form)
    assert 400 <= reply.status < 500
    assert reply.body.startswith(b"<!doctype html>")
    assert site.lake.branch().head == head


def test_a_body_that_is_no_form_is_refused(site: Site) -> None:
    headers = {"origin": site.server.url, "content-type": "application/json"}
    assert site.server.ask("POST", "/ui/merge", b"{}", headers).status == 415
    headers["content-type"] = "application/x-www-form-urlencoded"
    assert site.server.ask("POST", "/ui/merge", b"\xff\xfe=%zz", headers).status == 400


def test_tables_of_every_format_have_pages(own_lake: Lake) -> None:
    pytest.importorskip("lance")
    rows = pa.table({"n": [1, 2, 3], "text": ["a", "b", None]})
    own_lake.table("search.vectors").write(rows, format="lance", message="vectors")
    own_lake.table("raw.events").write(rows, format="parquet", message="events")
    own_lake.branch("next").create()
    own_lake.table("search.vectors", "next").append(rows)
    own_lake.table("raw.events", "next").append(rows, message="more events")
    with serve(own_lake) as site:
        overview = site.get("").text
        assert "raw.events files" in overview
        assert "search.vectors lance" in overview
        for key in ("search.vectors", "raw.events"):
            grown = site.lake.figures("next", table=key).table
            assert grown is not None
            first, last = (show_size(size.size_bytes) for size in grown.growth)
            page = site.get(f"table?key={key}&ref=next")
            assert re.search(rf"Size, \w+: {first} to \w+: {last}", page.text), page.text
            header = page.text.partition("Path")[2].partition("part" if key == "raw.events" else ".lance")[0]
            assert "Statistics" not in header, "nothing is known, and so there is no column"
        for key, figures in (("search.vectors", "rows 3 files 1"), ("raw.events", "files 1")):
            page = site.get(f"table?key={key}")
            assert figures in page.text, page.text
            assert "int64" in page.text
            assert "Rows 1 to 3" in site.get(f"rows?key={key}").text
            assert "3 added" in site.get(f"diff-rows?key={key}&base=main&to=next").text
            assert "1 file changed" in site.get(f"diff-files?key={key}&base=main&to=next").text
        assert "No conflicts" in site.get("merge?source=next&into=main").text
