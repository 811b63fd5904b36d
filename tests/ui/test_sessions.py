"""A browser signs in with a token, sees what the token may read, and cannot be used by other sites."""

from __future__ import annotations

from collections.abc import Iterator
from http.cookies import SimpleCookie

import pytest

from penstock.lake.lake import Lake
from tests.server.access import new_lake
from tests.ui.conftest import Site, serve

LAKE = "/api/penstock/v1/lake"


@pytest.fixture
def secrets() -> Iterator[Site]:
    """A lake with something to hide, behind tokens."""
    with new_lake() as lake, serve(lake, with_tokens=True) as site:
        yield site


def sign_in(site: Site, token: str, **headers: str) -> SimpleCookie:
    reply = site.post("login", {"token": token}, **headers)
    assert reply.status == 303, reply.body
    return SimpleCookie(reply.headers["set-cookie"])


def test_without_a_session_a_page_asks_for_a_token(secrets: Site) -> None:
    page = secrets.get("log?ref=main")
    assert page.status == 401
    assert ("input", "token") in [(tag, attributes.get("name")) for tag, attributes in page.elements]
    assert "orders" not in page.text
    assert "default-src 'none'" in page.reply.headers["content-security-policy"]


def test_a_token_begins_a_session_that_only_the_page_gets(secrets: Site) -> None:
    token = secrets.create_token("read")
    cookie = sign_in(secrets, token)["penstock_session"]
    assert cookie.value == token
    assert (cookie["path"], cookie["samesite"]) == ("/ui", "Strict")
    assert cookie["httponly"]
    assert not cookie["secure"]
    assert not cookie["max-age"]
    page = secrets.get("", token)
    assert page.status == 200
    assert "tester" in page.text


def test_a_session_over_tls_is_never_sent_without(secrets: Site) -> None:
    token = secrets.create_token("read")
    host = secrets.server.url.partition("://")[2]
    assert sign_in(secrets, token, origin=f"https://{host}")["penstock_session"]["secure"]


def test_a_session_is_no_token_for_the_api(secrets: Site) -> None:
    token = secrets.create_token("admin")
    assert secrets.server.get(LAKE, cookie=f"penstock_session={token}").status == 401
    assert secrets.server.get(LAKE, authorization=f"Bearer {token}").status == 200


@pytest.mark.parametrize(
    "token", ["", "nonsense", "penstock_000000000000_" + "a" * 43, "x" * 5000, "a;b\r\nc: d"]
)
def test_a_wrong_token_begins_no_session(secrets: Site, token: str) -> None:
    reply = secrets.post("login", {"token": token})
    assert reply.status == 401
    assert "set-cookie" not in reply.headers


def test_a_revoked_token_ends_its_session(lake_of_tokens: Lake) -> None:
    with serve(lake_of_tokens, with_tokens=True) as site:
        token = site.create_token("read")
        lake_of_tokens.revoke_token(token.split("_")[1])
        assert site.get("", token).status == 401


@pytest.fixture
def lake_of_tokens() -> Iterator[Lake]:
    with new_lake() as lake:
        yield lake


def test_signing_in_leads_back_to_the_page(secrets: Site) -> None:
    token, url = secrets.create_token("read"), secrets.server.url
    for referer, target in (
        (f"{url}/ui/log?ref=main", "/ui/log?ref=main"),
        (f"{url}/ui/logout", "/ui/"),
        ("https://elsewhere.example/ui/log", "/ui/"),
        (f"{url}//elsewhere.example/", "/ui/"),
        (f"{url}/docs", "/ui/"),
        ("nonsense[", "/ui/"),
        (f"{url}/ui/../..//elsewhere.example", "/ui/"),
        (f"{url}/ui//elsewhere.example", "/ui/"),
        (f"{url}/ui/\\elsewhere.example", "/ui/"),
        (f"{url}/ui/%2e%2e/api", "/ui/"),
        ("", "/ui/"),
    ):
        reply = secrets.post("login", {"token": token}, referer=referer)
        assert reply.headers["location"] == target


def test_signing_out_ends_the_session(secrets: Site) -> None:
    reply = secrets.post("logout", {}, secrets.create_token("read"))
    assert reply.status == 303
    cookie = SimpleCookie(reply.headers["set-cookie"])["penstock_session"]
    assert (cookie.value, cookie["max-age"], cookie["path"]) == ("", "0", "/ui")


def test_a_visitor_sees_what_the_token_may_read(secrets: Site) -> None:
    token = secrets.create_token("read:main:sales.*", "read:dev/*:sales.*")
    shown = secrets.get("tables", token)
    assert "sales.orders" in shown.text
    assert "hr" not in shown.text.split()
    assert secrets.get("table?key=sales.orders", token).status == 200
    for path in (
        "table?key=hr.pay",
        "log?ref=secret",
        "rows?key=hr.pay",
        "expectations",
        "reference?name=secret",
    ):
        page = secrets.get(path, token)
        assert page.status == 403, path
        assert "raise hr.pay" not in page.text
    log = secrets.get("log?ref=dev/etl", token)
    assert "orders of dev/etl" in log.text
    assert "raise hr.pay" not in log.text
    assert "secret" not in secrets.get("branches", token).text
    assert "secret" not in secrets.get("", token).text
    differences = secrets.get("diff?base=main&to=dev/etl", token)
    assert "sales.orders" in differences.text
    assert "hr.pay" not in differences.text
    commit = log.find_link("/ui/commit?ref=dev")
    assert commit is not None
    assert secrets.get(commit, token).status == 200
    identity = secrets.lake.branch("secret").head
    assert secrets.get(f"commit?ref={identity}", token).status == 403
    assert secrets.get(f"commit?ref=main@{identity}", token).status == 404


@pytest.mark.parametrize(
    ("grant", "is_told"),
    [("read:main:sales.*", False), ("read:main", True), ("write:dev:sales.*", True), ("admin", True)],
)
def test_where_tables_may_be_is_told_to_who_may_write_or_read_all(
    own_lake: Lake, grant: str, *, is_told: bool
) -> None:
    own_lake.add_root("/elsewhere/payroll")
    with serve(own_lake, with_tokens=True) as site:
        token = site.create_token(grant)
        assert ("/elsewhere/payroll" in site.get("maintenance", token).text) == is_told
        told = site.server.get(LAKE, authorization=f"Bearer {token}").body
        assert (b"/elsewhere/payroll" in told) == is_told
        assert own_lake.warehouse.encode() in told  # where the tables are that may be read


def test_queries_read_what_the_token_may_read(own_lake: Lake) -> None:
    own_lake.create_table("hr.pay", data={"n": [7]})
    with serve(own_lake, with_tokens=True) as site:
        token = site.create_token("read:main:sales.*")
        page = site.get("sql?sql=select+count(*)+as+c+from+sales.orders", token)
        assert "c int64 4" in page.text
        refused = site.get("sql?sql=select+*+from+hr.pay", token)
        assert "may not read 'hr.pay'" in refused.text
        elsewhere = site.get('sql?sql=select+*+from+"sales.orders@dev"', token)
        assert "may not read 'dev'" in elsewhere.text
        assert site.get("rows?key=sales.orders&ref=dev", token).status == 403
        assert site.get("diff-rows?key=sales.orders&base=main&to=dev", token).status == 403


def test_only_forms_of_the_page_change_something(secrets: Site) -> None:
    token = secrets.create_token("admin")
    form = {
        "source": "dev/etl",
        "into": "main",
        "if_head": secrets.lake.branch().head,
        "idempotency_key": "k",
    }
    for headers in (
        {"origin": "https://elsewhere.example"},
        {"origin": "null"},
        {"origin": ""},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ):
        before = secrets.lake.branch().head
        assert secrets.post("merge", form, token, **headers).status == 403, headers
        assert secrets.post("login", {"token": token}, **headers).status == 403, headers
        assert secrets.post("logout", {}, token, **headers).status == 403, headers
        for path in (
            "merge",
            "revert",
            "restore",
            "abort-transaction",
            "abort-job",
        ):  # whatever the form says
            assert secrets.post(path, {}, token, **headers).status == 403, (path, headers)
        assert secrets.lake.branch().head == before
    assert secrets.post("merge", form, token).status == 303
    assert secrets.lake.branch().head != form["if_head"]


def test_other_sites_cannot_load_pages(secrets: Site) -> None:
    token = secrets.create_token("read")
    headers = {"cookie": f"penstock_session={token}", "sec-fetch-site": "cross-site"}
    assert secrets.server.get("/ui/", **headers, **{"sec-fetch-mode": "no-cors"}).status == 403
    assert secrets.server.get("/ui/", **headers, **{"sec-fetch-mode": "navigate"}).status == 200


def test_a_link_from_elsewhere_leads_to_the_page(secrets: Site) -> None:
    """A browser sends no session where another site leads: the page has it ask again, from here, and once."""
    came = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert b'http-equiv="refresh"' in secrets.server.get("/ui/", **came).body
    assert b'http-equiv="refresh"' not in secrets.server.get("/ui/", **{"sec-fetch-site": "same-origin"}).body


def test_no_page_that_is_fetched_changes_anything(secrets: Site) -> None:
    token = secrets.create_token("admin")
    head = secrets.lake.branch().head
    for path in (
        "merge?source=dev/etl&into=main",
        "revert?commit=main",
        "restore?key=sales.orders&to=v1",
        "logout",
    ):
        secrets.get(path, token)
    assert secrets.get("abort-transaction?id=x", token).status == 405
    assert secrets.lake.branch().head == head


def test_a_second_try_leads_back_to_the_page_too(secrets: Site) -> None:
    url = secrets.server.url
    first = secrets.post("login", {"token": "wrong"}, referer=f"{url}/ui/log?ref=main")
    assert b'name="page" value="/ui/log?ref=main"' in first.body
    token = secrets.create_token("read")
    for page, target in (
        ("/ui/log?ref=main", "/ui/log?ref=main"),
        ("//elsewhere.example/ui/", "/ui/"),
        ("https://elsewhere.example", "/ui/"),
        ("/ui/x\r\nset-cookie: a=b", "/ui/"),
    ):
        reply = secrets.post("login", {"token": token, "page": page}, referer=f"{url}/ui/login")
        assert reply.headers["location"] == target
