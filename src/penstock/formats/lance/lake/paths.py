"""Names of things in Lance's words and in the lake's: paths of files, and ids of tables and namespaces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import unquote, urlsplit

from penstock.errors import InvalidRequest
from penstock.model.keys import Key

TOKEN_MAX_CHARS: Final = 4000


def make_whole_path(location: str, path: str) -> str:
    """The whole path or URL of a file near a location, which Lance names from the root of its storage."""
    if "://" in path:
        return path
    scheme, host = _split_bucket(location)
    whole = f"{scheme}://{host}/{path.lstrip('/')}" if scheme else f"/{path.lstrip('/')}"
    if not whole.startswith(f"{location}/") and (plain := unquote(whole)).startswith(f"{location}/"):
        return plain  # Lance writes some characters as a URL has them
    return whole


def is_whole_path(location: str) -> bool:
    """Whether a place is named by a whole path or URL, and not by what follows another place."""
    return "://" in location or location.startswith("/")


def make_path_from_root(location: str) -> str:
    """A whole path or URL as Lance names it: from the root of its storage, with no slash before it."""
    scheme, host = _split_bucket(location)
    return location.removeprefix(f"{scheme}://{host}").lstrip("/") if scheme else location.lstrip("/")


def _split_bucket(location: str) -> tuple[str, str]:
    if "://" not in location:
        return "", ""
    split = urlsplit(location)
    return split.scheme, split.netloc


def parse_table_key(parts: Sequence[str] | None) -> Key:
    """The key of a table; ``InvalidRequest`` if none is named, ``InvalidKey`` for parts that make none."""
    if not parts:
        raise InvalidRequest("the request lacks 'id', the name of the table as a list of its parts")
    return Key(*parts)


def parse_namespace_key(parts: Sequence[str] | None) -> Key | None:
    """The key of a namespace; nothing for the one that all others are in."""
    return Key(*parts) if parts else None


def parse_page_size(limit: int | None) -> int | None:
    """How many entries a page has at most; nothing for all of them, which is what a limit below zero means to
    Lance."""
    return None if limit is None or limit < 0 else limit


def require_token(token: str | None) -> str | None:
    """Where a list goes on; nothing from the beginning."""
    if token is not None and len(token) > TOKEN_MAX_CHARS:
        raise InvalidRequest("this is not a page token of this lake")
    return token or None
