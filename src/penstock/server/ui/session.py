"""Sessions: a browser shows its token by a cookie, which counts for the page and for nothing else.

The cookie is the token itself, so that a session ends when its token does, and no worker has to remember it.
Scripts cannot read it, no other site can have it sent, and a browser forgets it when it ends.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

import msgspec

from penstock.errors import Denied, Unauthenticated
from penstock.lake.tokens import parse_token
from penstock.server.access import AccessGate
from penstock.server.headers import Headers
from penstock.server.routes import HttpAnswer, RouteRequest
from penstock.server.ui.links import PREFIX, make_address
from penstock.server.ui.page_frame import redirect_to, render_login

COOKIE: Final = "penstock_session"
_ATTRIBUTES: Final = f"Path={PREFIX}; HttpOnly; SameSite=Strict"
_PAGE: Final = re.compile(rf"{PREFIX}/[a-z-]*")
"""The path of a page: whatever a browser or a proxy makes of ``..``, ``//`` and such, it is not asked."""


class TokenForm(msgspec.Struct, frozen=True):
    """What somebody signs in with."""

    token: str = ""
    page: str = ""
    """Where to go on, if the form is not on that page."""


def add_session(headers: Headers) -> None:
    """Let the session of a request count as its token, unless it shows one."""
    token = find_token(headers)
    if token and "authorization" not in headers:
        headers["authorization"] = f"Bearer {token}"


def find_token(headers: Mapping[str, str]) -> str:
    """The token in a request's cookie; empty if there is none."""
    for pair in headers.get("cookie", "").split(";"):
        name, _, value = pair.strip().partition("=")
        if name == COOKIE:
            return value
    return ""


def require_own_form(headers: Mapping[str, str]) -> None:
    """``Denied`` unless a form was sent by a page of this server: browsers say where one comes from."""
    origin, host = headers.get("origin", ""), headers.get("host", "")
    is_own = origin.partition("://")[2].lower() == host.lower() != ""
    if not is_own or headers.get("sec-fetch-site", "same-origin") != "same-origin":
        raise Denied("the form was not sent by a page of this server, so nothing was done")


def sign_in(ask: RouteRequest, gate: AccessGate) -> HttpAnswer:
    """Begin a session, and go on to the page that was asked for."""
    form: TokenForm = ask.body or TokenForm()
    token, page = form.token.strip(), _check_page(form.page) or find_page(ask.headers)
    try:
        parse_token(token)
        gate({"host": ask.headers.get("host", ""), "authorization": f"Bearer {token}"})
    except Unauthenticated as refused:
        return render_login(refused.message, page=page)
    secure = "; Secure" if ask.headers.get("origin", "").startswith("https://") else ""
    return redirect_to(page, ("set-cookie", f"{COOKIE}={token}; {_ATTRIBUTES}{secure}"))


def sign_out(_: RouteRequest) -> HttpAnswer:
    """End a session."""
    return redirect_to(make_address(""), ("set-cookie", f"{COOKIE}=; {_ATTRIBUTES}; Max-Age=0"))


def find_page(headers: Mapping[str, str]) -> str:
    """The page that a request was sent from, which may be any; the first one if that is not known."""
    try:
        parts = urlsplit(headers.get("referer", ""))
    except ValueError:
        return make_address("")
    if parts.netloc.lower() != headers.get("host", "").lower():
        return make_address("")
    return _check_page(parts.path + (f"?{parts.query}" if parts.query else "")) or make_address("")


def _check_page(target: str) -> str:
    """A target, if it is a page that can be shown; else nothing."""
    path = target.partition("?")[0]
    is_page = _PAGE.fullmatch(path) is not None and path not in (f"{PREFIX}/login", f"{PREFIX}/logout")
    return target if is_page and target.isascii() and target.isprintable() else ""
