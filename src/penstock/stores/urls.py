"""Addresses of stores: read once, shown without their secrets."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import SplitResult, parse_qsl, quote, urlencode, urlsplit

from penstock.errors import InvalidRequest

_SECRET: Final = re.compile(
    r"pass|secret|token|key|credential|signature|sas|mechanismproperties", re.IGNORECASE
)


def split_url(url: str) -> SplitResult:
    """The parts of a URL; ``InvalidRequest``, without a word of the URL, if it cannot be read."""
    scheme = url.partition("://")[0]
    try:
        parts = urlsplit(url)
    except ValueError:
        raise InvalidRequest(f"the {scheme}:// address cannot be read") from None
    behind = f"{parts.path}{parts.query}{parts.fragment}"
    if ":" in parts.netloc and "@" not in parts.netloc and "@" in behind:
        raise InvalidRequest(
            f"the {scheme}:// address cannot be read: write '/', '?' and '#' in a password as %2F, %3F, %23"
        )
    return parts


def parse_options(url: str, *known: str) -> dict[str, str]:
    """What stands behind the question mark; options that are not known are refused by name."""
    options = dict(parse_qsl(split_url(url).query, keep_blank_values=True))
    for name in options:
        if name not in known:
            raise InvalidRequest(
                f"{hide_secrets(url)} has an unknown option '{name}'; the options are: "
                f"{', '.join(known) or 'none'}",
                option=name,
            )
    return options


def hide_secrets(url: str) -> str:
    """The URL as it may be shown: without a password, and without options that hold a secret."""
    parts = split_url(url)
    user, at, host = parts.netloc.rpartition("@")
    shown = f"{user.partition(':')[0]}{at}{host}"
    harmless = [(name, value) for name, value in parse_qsl(parts.query, True) if not _SECRET.search(name)]
    query = urlencode(harmless, quote_via=quote, safe="/:")
    return f"{parts.scheme}://{shown}{parts.path}{'?' + query if query else ''}"
