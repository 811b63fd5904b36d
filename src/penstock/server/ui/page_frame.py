"""The frame of all pages: their head, navigation and headers, and the page that tells of an error."""

from __future__ import annotations

import hashlib
from functools import cache
from http import HTTPStatus
from importlib.metadata import version
from importlib.resources import files
from typing import Final, NamedTuple

from penstock.errors import PenstockError, RouteNotFound
from penstock.server.routes import HttpAnswer
from penstock.server.ui.elements import Child, Html, join_html, make_element
from penstock.server.ui.links import PREFIX, make_address, make_link

POLICY: Final = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final = (
    ("content-security-policy", POLICY),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cache-control", "no-store"),
)
"""Of every page. Without a referrer a browser would not say either where a form comes from."""
ASSETS: Final = {"ui.css": "text/css", "ui.js": "text/javascript", "icon.svg": "image/svg+xml"}

_VERSION: Final = version("penstock")

SECTIONS: Final = (
    ("", "Overview", False),
    ("tables", "Tables", True),
    ("log", "Log", True),
    ("sql", "SQL", True),
    ("branches", "Branches", False),
    ("tags", "Tags", False),
    ("diff", "Diff", False),
    ("merge", "Merge", False),
    ("transactions", "Transactions", False),
    ("jobs", "Jobs", False),
    ("expectations", "Expectations", False),
    ("maintenance", "Maintenance", False),
)
"""The pages of the navigation: their address, their name, and whether they are about a revision."""


class PageView(NamedTuple):
    """What a page shows inside of its frame."""

    title: str
    body: Html
    section: str | None = None
    """The page of the navigation that it belongs to."""
    ref: str | None = None
    """The revision that it is about, which links of the navigation keep."""
    status: int = 200


@cache
def serve_asset(name: str) -> HttpAnswer:
    """A file that pages need. Its address has a hash of its bytes, so that browsers may keep it."""
    if name not in ASSETS:
        raise RouteNotFound(
            f"the web page has no file '{name}'; it may be of another version of the server: reload the page"
        )
    return HttpAnswer(
        body=_read_asset(name),
        content_type=f"{ASSETS[name]}; charset=utf-8",
        headers=(*HEADERS[:-1], ("cache-control", "public, max-age=31536000, immutable")),
    )


@cache
def _read_asset(name: str) -> bytes:
    return files("penstock.server.ui").joinpath("assets", name).read_bytes()


@cache
def _make_asset_address(name: str) -> str:
    return f"{PREFIX}/assets/{name}?v={hashlib.sha256(_read_asset(name)).hexdigest()[:12]}"


def render_page(view: PageView, who: str = "", *, has_navigation: bool = True) -> HttpAnswer:
    """A whole page. ``who`` is the name of the token that it is shown to."""
    body = make_element(
        "body",
        make_link("#main", "Skip to the content", class_="skip"),
        _render_header(view, who) if has_navigation else None,
        make_element("main", view.body, id="main", tabindex=-1),
        make_element("footer", f"Penstock {_VERSION} · ", make_link("/docs", "API"), " · times are in UTC"),
    )
    page = make_element("html", _render_head(view.title), body, lang="en")
    return HttpAnswer(
        status=view.status,
        body=b"<!doctype html>" + page.encode(),
        content_type="text/html; charset=utf-8",
        headers=HEADERS,
    )


def _render_head(title: str, *more: Child) -> Html:
    return make_element(
        "head",
        make_element("meta", charset="utf-8"),
        make_element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        make_element("meta", name="color-scheme", content="light dark"),
        make_element("title", f"{title} · Penstock"),
        make_element("link", rel="icon", href=_make_asset_address("icon.svg")),
        make_element("link", rel="stylesheet", href=_make_asset_address("ui.css")),
        make_element("script", src=_make_asset_address("ui.js"), defer=True),
        *more,
    )


def _render_header(view: PageView, who: str) -> Html:
    items = [
        make_element(
            "li",
            make_element(
                "a",
                name,
                href=make_address(page, ref=view.ref if keeps_ref else None),
                aria_current="page" if page == view.section else None,
            ),
        )
        for page, name, keeps_ref in SECTIONS
    ]
    session = (
        make_element(
            "form",
            make_element("span", who, class_="who"),
            make_element("button", "Sign out", class_="quiet"),
            method="post",
            action=f"{PREFIX}/logout",
            class_="session",
        )
        if who
        else None
    )
    return make_element(
        "header",
        make_link(make_address(""), "Penstock", class_="brand"),
        make_element("nav", make_element("ul", items), aria_label="Pages"),
        session,
    )


def render_error(error: PenstockError, came_from: str = "", meant: str = "") -> HttpAnswer:
    """The page that tells of an error. ``came_from`` is the page before: a preview is made again there.

    ``meant`` is the page that was probably meant.
    """
    first, *rest = error.message.split("\n")
    body = join_html(
        make_element("h1", HTTPStatus(error.http_status).phrase),
        make_element("p", first, class_="error", role="alert"),
        make_element("pre", "\n".join(line.strip() for line in rest)) if rest else None,
        make_element("p", make_link(meant, "Show that", class_="button")) if meant else None,
        make_element("p", make_element("code", error.code), class_="dim"),
        make_element("p", make_link(came_from, "Back to the page before"))
        if came_from not in ("", make_address(""))
        else None,
        make_element("p", make_link(make_address(""), "To the overview")),
    )
    return render_page(PageView("Error", body, status=error.http_status))


def redirect_to(target: str, *headers: tuple[str, str]) -> HttpAnswer:
    """The answer to a form: the browser goes on to a page."""
    return HttpAnswer(
        status=303, headers=(*HEADERS, ("location", target), *headers), content_type="text/plain"
    )


def render_login(problem: str = "", *, page: str = "", goes_on: bool = False) -> HttpAnswer:
    """The page that asks for a token. ``page`` is where to go on then, if not to the page that it stands on.

    A browser that followed a link on another site sends no session. Such a one ``goes_on``: it asks again by
    itself, now from this page, and has it.
    """
    form = make_element(
        "form",
        make_element("label", "Token", for_="token"),
        make_element(
            "input",
            id="token",
            name="token",
            type="password",
            autocomplete="current-password",
            required=True,
            autofocus=True,
            placeholder="penstock_…",
        ),
        make_element("input", type="hidden", name="page", value=page) if page else None,
        make_element("button", "Sign in", class_="primary"),
        method="post",
        action=f"{PREFIX}/login",
        class_="stack",
    )
    body = make_element(
        "section",
        make_element("h1", "Sign in to Penstock"),
        make_element("p", problem, class_="error", role="alert") if problem else None,
        form,
        make_element(
            "p",
            "The page shows what the token may read. ",
            make_element("code", "penstock token create"),
            " makes one.",
            class_="dim",
        ),
        class_="login",
    )
    answer = render_page(PageView("Sign in", body, status=401), has_navigation=False)
    if not goes_on:
        return answer
    again = make_element("meta", http_equiv="refresh", content="0")
    return HttpAnswer(
        status=answer.status,
        body=answer.body.replace(b"</head>", again.encode() + b"</head>", 1),
        content_type=answer.content_type,
        headers=answer.headers,
    )
