"""Pages: lists are answered so many items at a time, each with a token that says where the next one begins.

A token names the first item of the next page, in hexadecimal digits, as Nessie's own do: a reference by
``refs/heads/`` or ``refs/tags/`` and its name, a key by its stored form. Lists are read from the lake page by
page as well, and never further than the answer needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from math import inf
from time import monotonic
from typing import Any, Final, TypeAlias, TypeVar

from penstock.errors import InvalidRequest
from penstock.kernel.time_limits import check_read_may_go_on
from penstock.model.keys import Key
from penstock.server.limits import Limits
from penstock.server.nessie.cel import compile_filter
from penstock.server.nessie.cel_bindings import FilterKind

T = TypeVar("T")
Keep: TypeAlias = Callable[[T], bool] | None
"""Which items to keep; all of them if there is none."""

SCAN_MAX: Final = 100_000
"""How many items a filter goes through for one page; if they do not suffice, the page is short."""
PAGE_MAX_S: Final = 5.0
"""How long items are looked at for one page; then the page is short, and its token leads on."""
BATCH: Final = 500
"""How many items are read from the lake at once."""

_BEFORE_KEY: Final = "M\0"
_AFTER_KEY: Final = "\0C"


def parse_page_size(limits: Limits, size: int | None) -> int:
    """How many items a page has: as many as wanted, if that is not too much. Nothing wanted means all."""
    return min(size, limits.page_max) if size is not None and size > 0 else limits.page_max


def find_page_deadline_s(deadline_s: float) -> float:
    """When a page is answered with what it has by then, for a request with a deadline."""
    now_s = monotonic()
    return now_s + min(PAGE_MAX_S, (deadline_s - now_s) / 2)


def take_page(
    items: Iterable[T], size: int, token: Callable[[T], str], keep: Keep[T] = None, end_s: float = inf
) -> tuple[tuple[T, ...], str | None]:
    """The first items that are to be kept, and the token of the next one if there is one.

    A page whose time is over is short, or empty: its token leads to the first item that was not looked at.
    """
    kept_items: list[T] = []
    for scanned, item in enumerate(items):
        check_read_may_go_on()
        if scanned >= SCAN_MAX or (scanned and monotonic() > end_s):
            return tuple(kept_items), token(item)
        if keep is not None and not keep(item):
            continue
        if len(kept_items) == size:
            return tuple(kept_items), token(item)
        kept_items.append(item)
    return tuple(kept_items), None


def make_filter(kind: FilterKind, expression: str, item: Callable[[T], Mapping[str, Any]]) -> Keep[T]:
    """Which items to keep; ``item`` gives what the expression sees of one. All, if there is no expression."""
    if not expression:
        return None
    matches = compile_filter(kind, expression)
    return lambda candidate: matches(item(candidate))


def list_in_batches(read: Callable[[T | None, int], tuple[T, ...]], size: int) -> Iterator[T]:
    """All items of a list that is read in batches: ``read`` gives so many that come after a given one."""
    last: T | None = None
    limit = min(size + 1, BATCH)
    while items := read(last, limit):
        yield from items
        last, limit = items[-1], BATCH


def encode_key_token(key: Key) -> str:
    return (_BEFORE_KEY + "\1".join(key) + _AFTER_KEY).encode().hex()


def parse_key_token(token: str) -> Key:
    """The key where the page begins."""
    text = parse_page_token(token)
    if not text.startswith(_BEFORE_KEY):
        raise InvalidRequest("Invalid token string representation")
    return Key(*text.removeprefix(_BEFORE_KEY).removesuffix(_AFTER_KEY).split("\1"))


def parse_page_token(token: str) -> str:
    """The text behind a token."""
    try:
        return bytes.fromhex(token).decode()
    except ValueError:
        pass
    for char in token:
        if char not in "0123456789abcdefABCDEF":
            raise InvalidRequest(f"Illegal hex character '{char}'")
    raise InvalidRequest("Invalid token string representation")
