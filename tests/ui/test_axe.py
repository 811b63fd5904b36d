"""Every page as axe judges it, in a real browser: names, roles, contrast, what is told by colour alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.formats.rows.arrow_types import pa
from penstock.lake.lake import Lake
from penstock.lake.opener import open_lake
from tests.ui.browser import AXE, missing, open_browser
from tests.ui.conftest import fill, orders, serve
from tests.ui.test_pages import SHOWN

WHY_NOT = missing() or ("" if AXE.exists() else "axe is not installed (make interop)")
pytestmark = [pytest.mark.verify, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)]

MORE = (
    "table?key=search.vectors",
    "table?key=raw.visits",
    "rows?key=empty.table",
    "rows?key=sales.orders&where=nonsense",
    "diff-rows?key=sales.orders&base=v1&to=main&on=nothing",
    "merge?source=other&into=main",
    "merge?source=dev&into=strict",
    "expectations?branch=strict",
    "table?key=sales.nothing",
    "log?author=nobody",
)
"""Pages of what the pages of other tests do not have: other formats, nothing, conflicts, errors."""
TELLING = ("", "log?ref=dev", "branches", "diff-rows?key=sales.orders&base=main&to=dev")
"""With some of the others, pages that have all colours, and all that depends on the width."""
DARK = ("--force-dark-mode", "--blink-settings=preferredColorScheme=0")


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with open_lake(str(tmp_path_factory.mktemp("lake")), create=True, author="ada") as lake:
        fill(lake)
        lake.table("search.vectors").write({"id": [1], "vector": [[0.5, 1.0]]}, format="lance")
        lake.table("search.vectors").append({"id": [2], "vector": [[0.5, 1.0]]})
        for _ in range(2):
            lake.table("raw.visits").write({"id": [1]}, format="parquet")
        lake.create_table("empty.table", schema=pa.schema([("id", pa.int64())]))
        lake.branch("other").create()
        lake.branch("strict").create(at="v1")
        lake.expect("no negative amounts", "select * from sales.orders where amount < 0", branch="strict")
        for name in ("main", "other"):
            lake.table("sales.orders", name).delete("day = '2026-11-01'")
        lake.table("sales.orders").append(orders(1.0))
        lake.finish_background()
        yield lake


@pytest.mark.parametrize("theme", ["light", "dark", "phone"])
def test_axe_finds_nothing_wrong_with_any_page(lake: Lake, theme: str) -> None:
    paths = (*SHOWN, *MORE) if theme == "light" else (*TELLING, *MORE[:7])
    window = "--window-size=500,900" if theme == "phone" else "--window-size=1280,900"
    with serve(lake) as site, open_browser(window, *(DARK if theme == "dark" else ())) as browser:
        browser.go(f"{site.server.url}/ui/")
        assert browser.run("return matchMedia('(prefers-color-scheme: dark)').matches") == (theme == "dark")
        violations = {}
        for path in paths:
            browser.go(f"{site.server.url}/ui/{path}")
            if found := browser.list_violations():
                violations[path] = found
        assert violations == {}
        browser.go(f"{site.server.url}/ui/log?ref=dev")
        browser.save_screenshot(theme)


def test_axe_finds_nothing_wrong_with_signing_in_and_with_work_in_flight(lake: Lake) -> None:
    with serve(lake, with_tokens=True) as site, open_browser() as browser:
        browser.go(f"{site.server.url}/ui/")
        assert browser.list_violations() == []
        browser.write("#token", site.create_token("admin"))
        browser.click("button")
        transaction = lake.transaction(message="left open")
        try:
            for path in ("transactions", f"transaction?id={transaction.id}", "maintenance"):
                browser.go(f"{site.server.url}/ui/{path}")
                assert "no transactions" not in browser.text
                assert browser.list_violations() == [], path
        finally:
            transaction.abort()


def test_axe_finds_what_is_wrong() -> None:
    """What it says nothing of would be found."""
    with open_browser() as browser:
        page = "<html><body><p style='color: %23eee'>pale</p><input><img src=x></body></html>"
        browser.go(f"data:text/html,{page}")
        found = {violation.partition(":")[0] for violation in browser.list_violations()}
        assert {"color-contrast", "label", "image-alt", "html-has-lang"} <= found
