"""Every page shows what it is about, is well-formed, and loads nothing from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from penstock.errors import CommitConflict
from penstock.formats.rows.arrow_types import pa
from penstock.lake.lake import Lake
from penstock.lake.opener import open_lake
from penstock.model.keys import Key
from penstock.model.nessie import IcebergTable
from penstock.processes.pool import ProcessPool
from penstock.server.app import ROW_WORK_IMPORTS
from penstock.server.limits import Limits
from penstock.server.metrics_endpoint import MetricsEndpoint
from penstock.server.ui import history_pages, page_request, table_pages
from penstock.server.ui.api import PAGES
from penstock.server.ui.page_parts import show_size
from penstock.server.ui.table_pages import query_rows
from tests.ui.conftest import HOSTILE, Page, Site, fill, orders, serve

SHOWN = {
    "": ("Lake", "main", "second load", "dev", "v1"),
    "branches": ("dev", "1 ahead, 0 behind", "default branch"),
    "tags": ("v1",),
    "expectations": ("The branch has no expectations.",),
    "maintenance": ("7 days", "All history is kept."),
    "log?ref=dev": ("bad load", "second load", "first load", "etl", "sales.orders", "v2"),
    "log?ref=dev&table=sales.orders&author=ada": ("bad load",),
    "log?ref=dev&text=SECOND": ("second load",),
    "log?since=1d&until=2100-01-01": ("second load",),
    "log?until=2001-01-01": ("No commits match.",),
    "commit?ref=dev": ("bad load", "ada", "v1 → v2"),
    "reference?name=dev": ("create", "commit"),
    "tables": ("sales", "sales.orders", "delta", "v1"),
    "tables?ref=v1&prefix=sales": ("sales.orders", "v0"),
    "table?key=sales.orders": ("amount", "double", "rows 4", "files 2", "second load", "Statistics"),
    "rows?key=sales.orders&ref=dev": ("-6.0", "null", "Rows 1 to 6 of 6"),
    "rows?key=sales.orders&ref=v1": ("Rows 1 to 3 of 3",),
    "rows?key=sales.orders&ref=dev&where=amount+<+0": ("-5.0", "Rows 1 to 2"),
    "sql": ("SQL at main",),
    "sql?sql=select+sum(amount)+as+total+from+sales.orders": ("total", "60.0"),
    "diff?base=main&to=dev": ("sales.orders", "1 commit ahead"),
    "diff?base=dev~1&to=main": ("Nothing differs.",),
    "diff-rows?key=sales.orders&base=main&to=dev": ("2 added", "0 removed", "-5.0"),
    "diff-rows?key=sales.orders&base=v1&to=main&on=day,id": ("1 added", "0 changed"),
    "diff-files?key=sales.orders&base=main&to=dev": ("1 file changed",),
    "merge": ("Merge",),
    "merge?source=dev&into=main": ("No conflicts.", "1 table would change", "2 rows added"),
    "revert?commit=main&on=main": ("No conflicts.", "1 row removed"),
    "restore?key=sales.orders": ("Restore",),
    "restore?key=sales.orders&to=v1": ("No conflicts.", "1 row removed"),
    "transactions": ("There are no transactions",),
    "transactions?all=true": ("There are no transactions",),
    "jobs": ("No job is running.",),
}
"""Pages, and what each must show."""
UNSHOWN = {"/transaction", "/job"}
"""Pages of things that the lake has not: other tests show them."""


@pytest.mark.parametrize("path", SHOWN)
def test_a_page_shows_what_it_is_about(sales: Site, path: str) -> None:
    page = sales.get(path)
    assert page.status == 200, page.text
    for text in SHOWN[path]:
        assert text in page.text, f"{text!r} is not in: {page.text}"
    check_page(page)


@pytest.fixture(scope="module")
def parted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A lake whose branch and default branch both went on since they parted."""
    with open_lake(str(tmp_path_factory.mktemp("parted")), create=True, author="ada") as lake:
        fill(lake)
        lake.table("sales.orders").append(orders(70.0, 80.0, day="2026-11-09"))
        lake.create_table("sales.returns", data=orders(1.0))
        with serve(lake) as site:
            yield site


@pytest.mark.parametrize(
    ("page", "all_of_it", "own"),
    [
        ("diff", "sales.returns", "sales.orders"),
        ("diff-rows", "2 added · 2 removed", "2 added · 0 removed"),
        ("diff-files", "2 files changed", "1 file changed"),
    ],
)
def test_a_difference_is_of_all_or_only_of_what_a_branch_changed(
    parted: Site, page: str, all_of_it: str, own: str
) -> None:
    """Each leads to the other one, and the second one to what the branch changed in each table."""
    key = {} if page == "diff" else {"key": "sales.orders"}
    whole = parted.get(page, **key, base="main", to="dev")
    check_page(whole)
    assert all_of_it in whole.text
    link = whole.find_link("since_fork=true")
    assert link is not None
    assert "only what dev changed" in whole.text
    since = parted.get(link)
    check_page(since)
    assert own in since.text
    assert all_of_it not in since.text
    back = next(link for link in since.links if link.startswith(f"/ui/{page}?base=main&to=dev"))
    assert parted.get(back).text == whole.text
    if page == "diff":
        rows = since.find_link("diff-rows")
        assert rows is not None
        assert "2 added · 0 removed" in parted.get(rows).text


def test_branches_lead_to_what_they_changed(parted: Site) -> None:
    branches = parted.get("branches")
    assert "1 ahead, 2 behind" in branches.text
    link = branches.find_link("diff?base=main&to=dev")
    assert link is not None
    page = parted.get(link)
    assert "sales.orders" in page.text
    assert "sales.returns" not in page.text


def test_a_tag_is_compared_as_it_is(parted: Site) -> None:
    """It has no commits that the default branch has not."""
    link = parted.get("tags").find_link("diff?base=main&to=v1")
    assert link is not None
    assert "sales.returns" in parted.get(link).text


def test_tables_are_offered_where_a_query_is_to_be_written(sales: Site) -> None:
    page = sales.get("sql", ref="dev")
    link = page.find_link("select")
    assert link is not None
    assert "-6.0" in sales.get(link).text


@pytest.mark.parametrize(
    "key", [Key("order", "select"), Key("table"), Key("a.b", 'c"d'), Key("x;y", "1 --z")]
)
def test_the_query_that_is_offered_for_a_table_finds_its_rows(own_lake: Lake, key: Key) -> None:
    own_lake.table(key).write([{"n": 42}])
    assert own_lake.sql(query_rows(key)).fetchall() == [(42,)]


def test_every_page_is_tried() -> None:
    tried = {f"/{path.partition('?')[0]}" for path in SHOWN} | UNSHOWN
    assert {route.path for route in PAGES} == tried


def check_page(page: Page) -> None:
    """Whether a page is whole, and can neither run nor load what is not the server's."""
    headers = page.reply.headers
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self';")
    assert "unsafe" not in policy
    assert headers["x-frame-options"] == "DENY"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"
    assert headers["cache-control"] == "no-store"
    assert headers["content-type"] == "text/html; charset=utf-8"
    assert not page.open, f"{page.open} are not closed"
    tags = [tag for tag, _ in page.elements]
    assert tags.count("h1") == tags.count("main") == tags.count("title") - tags.count("rect") == 1
    for tag, attributes in page.elements:
        assert not [name for name in attributes if name.startswith("on") or name == "style"], (
            tag,
            attributes,
        )
        for name in ("href", "src", "action"):
            assert name not in attributes or re.match(r"[/#]", attributes[name] or ""), (tag, attributes)
        if tag in ("input", "textarea") and attributes.get("type") != "hidden":
            assert "name" in attributes
    assert tags.count("script") == 1
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids)), f"an id is there twice: {ids}"


def test_links_of_all_pages_lead_to_pages(sales: Site) -> None:
    """From the first page on, whatever a page links to is a page, or says what is wrong with it."""
    known, waiting = {"/ui/"}, ["/ui/"]
    statuses: dict[str, int] = {}
    while waiting and len(statuses) < 60:
        address = waiting.pop(0)
        page = sales.get(address)
        statuses[address] = page.status
        for link in page.links:
            if link.startswith("/ui/") and "diff-rows" not in link and link not in known:
                known.add(link)
                waiting.append(link)
    assert [address for address, status in statuses.items() if status != 200] == []
    assert len(statuses) > 40


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("nothing", 404),
        ("log?ref=~~", 400),
        ("log?ref=nobody", 404),
        ("log?after=0000", 400),
        ("log?merged=perhaps", 400),
        ("log?table=a..b", 400),
        ("log?since=yesterday", 400),
        ("commit?ref=ffffffffff", 404),
        ("reference", 400),
        ("reference?name=a%20b", 400),
        ("reference?name=main&before=x", 400),
        ("tables?after=a..b", 400),
        ("table", 400),
        ("table?key=sales.nothing", 404),
        ("table?key=sales.orders&file=-1", 400),
        ("rows?key=", 400),
        ("rows?key=sales", 400),
        ("rows?key=sales.orders&offset=10001", 400),
        ("rows?key=sales.orders&offset=-1", 400),
        ("rows?key=sales.orders&limit=0", 400),
        ("rows?key=sales.orders&limit=101", 400),
        ("rows?key=sales.orders&limit=ten", 400),
        ("rows?key=sales.orders&where=nonsense%20%23", 400),
        ("rows?key=sales.orders&where=%00", 400),
        ("diff?base=nobody", 404),
        ("diff-rows?key=sales.orders", 400),
        ("diff-rows?key=sales.orders&base=main&to=dev&on=nothing", 400),
        ("diff-rows?key=sales.nothing&base=main&to=dev", 404),
        ("diff-files?key=sales.orders&base=main&to=dev&offset=-5", 400),
        ("revert", 400),
        ("restore", 400),
        ("transaction?id=x", 400),
        (f"transaction?id={'0' * 32}", 404),
        ("job?id=x", 400),
        (f"job?id={'0' * 32}", 404),
        ("expectations?branch=nobody", 404),
        ("merge?source=nobody", 404),
        ("assets/nothing", 404),
        ("assets/..%2f__init__.py", 404),
        ("log?ref=%ff", 400),
    ],
)
def test_what_cannot_be_shown_is_a_page_that_says_so(sales: Site, path: str, status: int) -> None:
    page = sales.get(path)
    assert page.status == status, page.text
    check_page(page)


@pytest.mark.parametrize(
    ("path", "text", "field"),
    [
        ("rows?key=sales.orders&where=amout<0", "did you mean 'amount'?", "where"),
        ("diff-rows?key=sales.orders&base=main&to=dev&on=ident", "ident", "on"),
    ],
)
def test_what_was_typed_wrong_can_be_mended_in_its_place(
    sales: Site, path: str, text: str, field: str
) -> None:
    page = sales.get(path)
    assert page.status == 400
    check_page(page)
    assert text in page.text
    typed = {
        attributes["name"]: attributes.get("value") for tag, attributes in page.elements if tag == "input"
    }
    assert typed[field] == path.rpartition("=")[2]
    assert typed["key"] == "sales.orders"


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("sql?sql=select", "invalid query"),
        ("sql?sql=select+*+from+read_csv('/etc/passwd')", "read_csv"),
        ("sql?sql=attach+'x'+as+y", ""),
        ("sql?sql=set+memory_limit='1TB'", ""),
        ("sql?sql=select+*+from+sales.nothing", "sales.nothing"),
        ("sql?sql=select+1;select+2", "one query"),
        ("merge?source=dev&into=nobody", "nobody"),
        ("merge?source=dev&into=v1", "v1"),
        ("revert?commit=ffffffffff", "ffffffffff"),
        ("restore?key=sales.orders&to=nobody", "nobody"),
    ],
)
def test_what_cannot_be_done_is_told_in_its_place(sales: Site, path: str, text: str) -> None:
    page = sales.get(path)
    assert page.status == 200, page.text
    assert any("problem" in (attributes.get("class") or "") for _, attributes in page.elements)
    assert text in page.text
    check_page(page)


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("table?key=sales.ordres&ref=dev", "table?key=sales.orders&ref=dev"),
        ("log?ref=dve&merged=false", "log?ref=dev&merged=false"),
        ("log?table=sales.ordres&ref=dev", "log?ref=dev&table=sales.orders"),
        ("diff?base=main&to=dve", "to=dev"),
        ("merge?source=dve&into=main", "merge?source=dev&into=main"),
        ("rows?key=sales.orders&ref=mian&where=amount+>+3", "ref=main&where=amount+%3E+3"),
    ],
)
def test_a_wrong_name_leads_to_the_page_that_was_meant(sales: Site, path: str, meant: str) -> None:
    page = sales.get(path)
    check_page(page)
    assert "Did you mean" in page.text
    link = page.find_link(meant)
    assert link is not None
    assert sales.get(link).status == 200


def test_a_table_that_a_branch_has_not_is_shown_where_it_is(own_lake: Lake) -> None:
    own_lake.table("sales.late").write(orders(1.0))
    with serve(own_lake) as site:
        page = site.get("rows?key=sales.late&ref=dev")
        assert page.status == 404
        assert "It is there at 'main'" in page.text
        assert page.find_link("rows?key=sales.late&ref=main") is not None


def test_the_place_of_the_store_is_not_among_the_properties_of_a_table(sales: Site) -> None:
    assert "delta.managedCommitOwnerName" in sales.get("table?key=sales.orders").text
    assert "managedCommitOwnerConf" not in sales.get("table?key=sales.orders").text


def test_the_address_without_a_slash_is_the_page_too(sales: Site) -> None:
    assert sales.get("/ui").status == 200


def test_assets_may_be_kept_for_ever(sales: Site) -> None:
    addresses = [
        attributes.get("href") or attributes.get("src") or ""
        for tag, attributes in sales.get("").elements
        if tag in ("link", "script")
    ]
    assert len(addresses) == 3
    for address in addresses:
        reply = sales.server.get(address)
        assert reply.status == 200
        assert "immutable" in reply.headers["cache-control"]
        assert reply.body


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A lake in which everything that can be named or said is meant to run in a browser."""
    root = tmp_path_factory.mktemp("hostile")
    with open_lake(str(root), create=True, author=HOSTILE) as lake:
        rows = pa.table({HOSTILE: [HOSTILE, None], "n": [1, 2]})
        key = f'"{HOSTILE.replace(chr(34), chr(34) * 2)}".t'.replace("\u202e", "")
        lake.create_table(key, data=rows, message=HOSTILE, properties={HOSTILE: HOSTILE})
        lake.branch().put("pointer", IcebergTable(metadata_location=f"s3://x/{HOSTILE}"), message=HOSTILE)
        lake.branch("dev").create()
        lake.table(key, "dev").append(rows, message=HOSTILE)
        lake.transaction(message=HOSTILE)
        lake.expect("count", f"select * from {key} where n > 100")
        with serve(lake) as site:
            yield site


def test_what_people_write_is_text(hostile: Site) -> None:
    """Every page that can be reached shows names, messages and values as they are, and runs none of them."""
    known, waiting = {"/ui/"}, ["/ui/", "/ui/sql?sql=" + "%3Cscript%3Ealert(1)%3C/script%3E"]
    shown = 0
    while waiting and shown < 45:
        page = hostile.get(waiting.pop(0))
        shown += 1
        body = page.reply.body.decode()
        assert page.status == 200, page.text
        assert "<script>" not in body
        assert "<img" not in body
        assert "\u202e" not in body
        check_page(page)
        for link in page.links:
            if link.startswith("/ui/") and link not in known:
                known.add(link)
                waiting.append(link)
    assert shown > 30


def test_lists_are_paged_and_complete(tmp_path: Path) -> None:
    """Following the links of lists shows everything, once, and no page shows more than it may."""
    with open_lake("memory:", author="ada") as lake:
        for n in range(60):
            lake.branch().put(
                f"t{n:03}", IcebergTable(metadata_location=f"s3://x/{n}"), message=f"commit {n}"
            )
        for n in range(60):
            lake.branch(f"b{n:03}").create()
        with serve(lake) as site:
            for path, pattern, most in (
                ("tables", r"key=(t\d+)", 50),
                ("branches", r"tables\?ref=(b\d+)", 50),
                ("log", r"commit \d+", 25),
            ):
                listed: list[str] = []
                address: str | None = path
                while address is not None:
                    page = site.get(address)
                    found = dict.fromkeys(re.findall(pattern, page.reply.body.decode()))
                    assert 0 < len(found) <= most
                    listed += found
                    address = next((link for link in page.links if "after=" in link), None)
                assert len(listed) == len(set(listed)) == 60, path


def test_rows_are_paged_and_end(own_lake: object, tmp_path: Path) -> None:
    with open_lake(str(tmp_path / "rows"), create=True) as lake:
        lake.create_table("t", data=orders(*(float(n) for n in range(130))))
        with serve(lake) as site:
            amounts: list[str] = []
            address: str | None = "rows?key=t"
            while address is not None:
                page = site.get(address)
                assert page.status == 200
                amounts += re.findall(r'<td class="number">(\d+\.0)</td>', page.reply.body.decode())
                address = page.find_link("offset=")
            assert amounts == [f"{n}.0" for n in range(130)]


@pytest.fixture(scope="module")
def rarely_changed() -> Iterator[Site]:
    """A lake of many commits, of which the first, the tenth and some of the last ones changed one table."""
    with open_lake("memory:", author="ada") as lake:
        for n in range(60):
            name = "rare.t" if n in (0, 9, 58) else f"busy.t{n % 7}"
            lake.branch().put(name, IcebergTable(metadata_location=f"s3://x/{n}"), message=f"load no. {n}.")
        with serve(lake) as site:
            yield site


def test_a_search_shows_what_it_has_found_and_goes_on(
    rarely_changed: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_pages, "SEARCHED_COMMITS", 20)
    pages = [rarely_changed.get("log?table=rare.t")]
    while address := pages[-1].find_link("after="):
        pages.append(rarely_changed.get(address))
        check_page(pages[-1])
    shown = [re.findall(r"load no\. (\d+)\.", page.text) for page in pages]
    assert shown == [["58"], [], ["9", "0"]]
    assert "1 commit found in the 20 that were searched, back to" in pages[0].text
    assert "0 commits found in the 20 that were searched" in pages[1].text
    assert ["Look further »" in page.text for page in pages] == [True, True, False]
    assert "were searched" not in pages[2].text
    assert "First page" in pages[2].text


def test_a_search_ends_when_its_time_is_over(rarely_changed: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read by then is shown; a part that has no time at all says so."""
    monkeypatch.setattr(history_pages, "SEARCH_S", -1.0)
    page = rarely_changed.get("log?text=nothing")
    assert page.status == 200
    assert "was stopped" in page.text
    check_page(page)


def test_the_commits_of_a_table_are_looked_for_among_the_latest(
    rarely_changed: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_pages, "SEARCHED_COMMITS", 20)
    page = rarely_changed.get("table?key=rare.t")
    check_page(page)
    assert re.findall(r"load no\. (\d+)\.", page.text) == ["58"]
    further = page.find_link("after=")
    assert further is not None
    assert re.findall(r"load no\. (\d+)\.", rarely_changed.get(further).text) == ["9", "0"]
    busy = rarely_changed.get("table?key=rare.t&ref=main~59")
    assert "were searched" not in busy.text
    assert busy.find_link("after=") is None


def test_the_size_of_a_table_is_told_for_its_versions(own_lake: Lake) -> None:
    """As the log tells it: compaction, deletion and statistics included."""
    table = own_lake.table("sales.orders")
    table.delete("day = '2026-11-01'")
    table.append(orders(1.0, 2.0))
    table.optimize()
    sizes = table.snapshot().past_sizes(30)
    assert sizes == {
        version: sum(file.size for file in table.snapshot(version).files())
        for version in range(table.snapshot().version + 1)
    }
    with serve(own_lake) as site:
        page = site.get("table?key=sales.orders")
        assert (
            f"Size, v0: {show_size(sizes[0])} to v{max(sizes)}: {show_size(sizes[max(sizes)])}" in page.text
        )
        check_page(page)


def test_what_takes_long_beside_other_things_is_left_out(
    sales: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Distances of branches and the commits of a table: a page has one budget for all of it."""
    monkeypatch.setattr(page_request, "SOON_S", 0.0)
    assert "ahead" not in sales.get("branches").text
    assert "dev is many commits away from main" in sales.get("diff?base=main&to=dev").text
    assert "Search the log" in sales.get("table?key=sales.orders").text


def test_conflicts_are_counted_by_branch(tmp_path: Path) -> None:
    endpoint = MetricsEndpoint()
    with open_lake(str(tmp_path / "lake"), create=True, meter=endpoint.meter) as lake:
        lake.branch().put("t", IcebergTable(metadata_location="s3://x/1"))
        base = lake.branch().head
        lake.branch().put("t", IcebergTable(metadata_location="s3://x/2"))
        with pytest.raises(CommitConflict):
            lake.branch().put("t", IcebergTable(metadata_location="s3://x/3"), base=base)
        with serve(lake, metrics=endpoint.render_metrics) as site:
            page = site.get("maintenance")
            assert "main 3 1 33.3% 0" in page.text
            check_page(page)
        lake.branch("dev").create().put("u", IcebergTable(metadata_location="s3://x/4"))
        with serve(lake, metrics=endpoint.render_metrics, with_tokens=True) as site:
            assert "dev 2 0 0.0% 0" in site.get("maintenance", site.create_token("read:dev", name="dev")).text
            page = site.get("maintenance", site.create_token("read:main"))
            assert "main 3 1 33.3% 0" in page.text
            assert "dev 2" not in page.text


@pytest.mark.verify
def test_a_query_without_an_end_is_ended(tmp_path: Path) -> None:
    limits = Limits(row_timeout_s=1.0, row_workers=1)
    pool = ProcessPool(limits.processes, ROW_WORK_IMPORTS)
    endless = "select count(*) from range(1000000000000) a, t"
    large = "select list(a.range) from range(1000000000000) a, t"
    try:
        with open_lake(str(tmp_path / "lake"), create=True) as lake:
            lake.create_table("t", data=orders(1.0))
            with serve(lake, limits=limits, pool=pool) as site:
                for query in (endless, large):
                    page = site.get("sql", sql=query)
                    assert page.status == 200
                    assert "this server's limit" in page.text, page.text
                pool.limits = msgspec.structs.replace(
                    pool.limits, timeout_s=60.0
                )  # a slow machine is no query
                assert "1 row." in site.get("sql", sql="select * from t").text
    finally:
        pool.close()


def test_a_lake_without_a_commit_has_pages(tmp_path: Path) -> None:
    with open_lake(str(tmp_path / "empty"), create=True) as lake, serve(lake) as site:
        for path in ("", "log", "tables", "branches", "diff", "sql", "merge?source=main"):
            page = site.get(path)
            assert page.status == 200, page.text
            check_page(page)
        assert site.get("commit").status == 400
