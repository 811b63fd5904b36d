"""The paths of a person, in a real Chromium: without an error in its console or a request to elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.formats.rows.arrow_types import pa
from penstock.lake.lake import Lake
from penstock.lake.opener import open_lake
from tests.ui.browser import CONTROL, ENTER, TAB, Browser, missing, open_browser
from tests.ui.conftest import HOSTILE, Site, fill, orders, serve

pytestmark = [pytest.mark.verify, pytest.mark.skipif(bool(missing()), reason=missing())]


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    with open_browser("--window-size=1280,900") as opened:
        yield opened


@pytest.fixture
def browser(window: Browser) -> Browser:
    """A window in which nothing has happened yet."""
    window.go("about:blank")
    window.problems()
    window.hosts()
    return window


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with open_lake(str(tmp_path / "lake"), create=True, author="ada") as opened:
        fill(opened)
        opened.branch("fix-returns").create(at="v1")
        opened.create_table("sales.returns", data=orders(1.0, 2.0), branch="fix-returns", message="returns")
        opened.merge("fix-returns", "main", message="merge fix-returns")
        opened.table("sales.orders").append(
            orders(40.0, day="2026-11-04"), message="third load", author="etl"
        )
        opened.table("sales.orders").append(
            orders(-99.0, -98.0, -97.0, day="2026-11-05"), message="nightly load", author="etl"
        )
        opened.finish_background()
        yield opened


def check_quiet(browser: Browser, site: Site) -> None:
    """Whether nothing went wrong, and nobody else was asked."""
    assert browser.problems() == []
    assert browser.hosts() <= {site.server.url.partition("://")[2]}


def test_a_bad_load_is_found_looked_at_and_reverted(browser: Browser, lake: Lake) -> None:
    with serve(lake) as site:
        browser.go(f"{site.server.url}/ui/")
        browser.save_screenshot("overview")
        browser.click("=Log")
        browser.save_screenshot("log")
        assert "merge fix-returns" in browser.text
        browser.click("=nightly load")
        browser.save_screenshot("commit")
        browser.click("=rows")
        assert "3 added" in browser.text
        assert "-99.0" in browser.text
        browser.save_screenshot("row-diff")
        browser.click("=files")
        assert "1 file changed" in browser.text
        browser.click("=sales.orders")
        browser.save_screenshot("table")
        browser.click("=rows")
        browser.write("input[name=where]", "amount < 0")
        with browser.loading_a_page():
            browser.press(ENTER)
        assert "Rows 1 to 3" in browser.text
        browser.save_screenshot("rows")
        browser.click("=log")
        browser.click("=nightly load")
        browser.click("=Revert on main…")
        assert "3 rows removed" in browser.text
        browser.save_screenshot("revert")
        browser.click("form.act button")
        assert "revert" in browser.text
        assert "/ui/commit" in browser.url
        assert lake.table("sales.orders").count("amount < 0") == 0
        check_quiet(browser, site)


def test_a_branch_is_reviewed_and_merged(browser: Browser, lake: Lake) -> None:
    lake.expect("no huge amounts", "select * from sales.orders where amount > 1000000")
    with serve(lake) as site:
        browser.go(f"{site.server.url}/ui/branches")
        browser.save_screenshot("branches")
        browser.click("a[href*='diff?base=main&to=dev']")
        browser.save_screenshot("diff")
        browser.click("=merge…")
        assert "No conflicts" in browser.text
        assert "holds" in browser.text
        browser.save_screenshot("merge")
        browser.click("form.act button")
        assert lake.table("sales.orders").count("amount = -5") == 1
        lake.branch("other").create(at="main~1")
        for name in ("main", "other"):
            lake.table("sales.orders", name).delete("day = '2026-11-01'")
        browser.go(f"{site.server.url}/ui/merge?source=other&into=main")
        assert "nothing would be changed" in browser.text
        browser.save_screenshot("conflict")
        browser.click("=Keep the table of main")
        assert "No conflicts" in browser.text
        browser.click("form.act button")
        assert "merge other" in browser.text
        check_quiet(browser, site)


def test_a_person_signs_in_and_out(browser: Browser, lake: Lake) -> None:
    with serve(lake, with_tokens=True) as site:
        browser.go(f"{site.server.url}/ui/log?ref=dev")
        browser.save_screenshot("sign-in")
        browser.problems()  # a browser tells of every answer that is 401
        browser.write("#token", "penstock_000000000000_" + "a" * 43)
        browser.click("button")
        assert "unknown token" in browser.text
        browser.problems()
        browser.write("#token", site.create_token("read", name="reader"))
        browser.click("button")
        assert "bad load" in browser.text
        assert browser.url == f"{site.server.url}/ui/log?ref=dev"
        assert browser.run("return document.cookie") == ""
        check_quiet(browser, site)
        browser.click(".session button")
        assert "Sign in" in browser.text


def test_a_link_on_another_site_leads_to_the_page(browser: Browser, lake: Lake) -> None:
    """The session is not sent with it, and the page is shown all the same."""
    with serve(lake, with_tokens=True) as site, serve(lake) as elsewhere:
        browser.go(f"{site.server.url}/ui/")
        browser.write("#token", site.create_token("read"))
        browser.click("button")
        other = elsewhere.server.url.replace("127.0.0.1", "localhost")
        browser.go(f"{other}/ui/")
        browser.run(
            "const a = document.createElement('a'); a.href = arguments[0]; a.id = a.textContent = 'out';"
            "document.querySelector('main').prepend(a)",
            f"{site.server.url}/ui/log?ref=dev",
        )
        browser.click("#out")
        browser.wait_for(
            "return document.body.innerText.includes('bad load')"
        )  # the first page leads to a second
        assert "bad load" in browser.text
        browser.problems()


def test_nothing_that_people_write_runs(browser: Browser, tmp_path: Path) -> None:
    with open_lake(str(tmp_path / "hostile"), create=True, author=HOSTILE) as lake:
        rows = pa.table({HOSTILE: [HOSTILE]})
        lake.create_table("t", data=rows, message=HOSTILE)
        lake.branch("dev").create()
        lake.table("t", "dev").append(rows, message=HOSTILE)
        with serve(lake) as site:
            for path in (
                "",
                "log",
                "commit",
                "table?key=t",
                "rows?key=t",
                "diff-rows?key=t&base=main&to=dev",
            ):
                browser.go(f"{site.server.url}/ui/{path}")
                assert "alert" in browser.text or path == ""
                assert browser.run("return document.querySelectorAll('img, main script').length") == 0
            check_quiet(browser, site)


def test_the_keyboard_is_enough(browser: Browser, lake: Lake) -> None:
    with serve(lake) as site:
        browser.go(f"{site.server.url}/ui/sql")
        browser.press("/")
        assert browser.run("return document.activeElement.name") == "sql"
        browser.press("select 6 * 7 as answer from sales.orders limit 1")
        with browser.loading_a_page():
            browser.press(ENTER, holding=CONTROL)
        assert "42" in browser.text
        browser.save_screenshot("sql")
        browser.go(f"{site.server.url}/ui/")
        browser.press(TAB)
        assert browser.run("return document.activeElement.textContent") == "Skip to the content"
        browser.press(ENTER)
        assert browser.run("return document.activeElement.id") == "main"
        check_quiet(browser, site)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "log?ref=dev",
        "branches",
        "tags",
        "table?key=sales.orders",
        "rows?key=sales.orders",
        "sql",
        "diff?base=main&to=dev&since_fork=true",
        "diff-files?key=sales.orders&base=main&to=dev",
        "merge?source=dev",
        "maintenance",
    ],
)
def test_pages_fit_a_phone(browser: Browser, lake: Lake, path: str) -> None:
    with serve(lake) as site, browser.phone():
        browser.go(f"{site.server.url}/ui/{path}")
        assert browser.run("return document.documentElement.scrollWidth") <= 390
        browser.save_screenshot(f"phone-{path.partition('?')[0] or 'overview'}")


def test_long_texts_are_shown_whole(browser: Browser, lake: Lake) -> None:
    """In several lines: nobody has to point at one to read it. A vector has one line."""
    texts = ["short", "word " * 50, "x" * 250, "two\nlines"]
    lake.table("notes").write({"n": [*range(len(texts))], "text": texts, "list": [[1.5] * 60] * len(texts)})
    with serve(lake) as site:
        browser.go(f"{site.server.url}/ui/rows?key=notes")
        cut = "return [...document.querySelectorAll('td')].filter(t => t.scrollWidth > t.clientWidth)"
        assert browser.run(f"{cut}.map(t => t.cellIndex)") == [2] * len(texts)
        assert all(browser.run(f"{cut}.map(t => t.title === t.textContent)"))
        assert "word " * 49 in browser.text
        browser.save_screenshot("long-texts")
        check_quiet(browser, site)


def test_a_branch_is_compared_without_what_others_did(browser: Browser, lake: Lake) -> None:
    """By the keyboard alone, from the list of branches to the rows."""
    with serve(lake) as site:
        browser.go(f"{site.server.url}/ui/branches")
        for text in ("diff", "rows"):
            with browser.loading_a_page():
                browser.tab_to(text)
                browser.press(ENTER)
        assert "2 added · 0 removed" in browser.text
        check_quiet(browser, site)


def test_a_merge_is_made_by_the_keyboard(browser: Browser, lake: Lake) -> None:
    with serve(lake) as site:
        browser.go(f"{site.server.url}/ui/merge?source=dev&into=main")
        with browser.loading_a_page():
            browser.tab_to("Merge into main")
            browser.press(ENTER)
        assert "merge dev" in browser.text
        assert lake.table("sales.orders").count("amount = -5") == 1
        check_quiet(browser, site)
