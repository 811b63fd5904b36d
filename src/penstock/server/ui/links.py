"""Addresses of pages. Everything that a page shows has one, and what it shows is said by its query."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlencode

from penstock.model.commits import EMPTY_COMMIT_ID
from penstock.model.keys import Key
from penstock.server.ui.elements import Child, Html, make_element

PREFIX: Final = "/ui"
ID_CHARS: Final = 8


def make_address(page: str, **query: object) -> str:
    """The address of a page. What is ``None`` or empty is left out, and a list is there value by value.

    Each page has parameters of its own, which its type of query checks when the address is opened.
    """
    pairs = [
        (name, "true" if value is True else str(value))
        for name, values in query.items()
        for value in (values if type(values) in (list, tuple) else (values,))  # type: ignore[attr-defined]
        if value is not None and value is not False and value != ""
    ]
    return f"{PREFIX}/{page}" + (f"?{urlencode(pairs)}" if pairs else "")


def make_link(target: str, *children: Child, class_: str | None = None, title: str | None = None) -> Html:
    return make_element("a", *children, href=target, class_=class_, title=title)


def pin_revision(commit: str, via: str | None) -> str:
    """A commit as a revision: with the reference that leads to it, so that who may read that finds it."""
    return f"{via}@{commit}" if via else commit


def shorten_revision(ref: str) -> str:
    """A revision for people: ids of commits are cut."""
    name, at, rest = ref.rpartition("@")
    head = rest[:64]
    if len(head) == 64 and all(char in "0123456789abcdef" for char in head):
        rest = head[:ID_CHARS] + rest[64:]
    return f"{name}{at}{rest}"


def link_commit(commit: str, via: str | None) -> Html:
    """A link to a commit by its short id."""
    if commit == EMPTY_COMMIT_ID:
        return make_element("span", "empty", class_="dim")
    return make_link(make_address("commit", ref=pin_revision(commit, via)), commit[:ID_CHARS], class_="id")


def link_table(key: Key, ref: str) -> Html:
    return make_link(make_address("table", key=key, ref=ref), str(key))


def link_reference(name: str) -> Html:
    return make_link(make_address("log", ref=name), name, class_="ref")
