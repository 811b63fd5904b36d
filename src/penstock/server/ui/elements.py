"""HTML by construction: text is escaped, and only what was built here is not."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Final, TypeAlias, Union

VOID: Final = frozenset(("br", "hr", "img", "input", "link", "meta"))
"""Elements without content or end."""
TEXT_MAX_CHARS: Final = 20_000


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


Child: TypeAlias = Union[str, int, "Iterable[Child]", None]
"""What may be in an element: text, elements, nothing, or several of them."""
Attribute: TypeAlias = str | int | bool | None


def make_element(name: str, /, *children: Child, **attributes: Attribute) -> Html:
    """An element. An attribute that is ``None`` or ``False`` is left out; ``class_`` is ``class``, and ``_``
    in other names is ``-``."""
    head = "".join(_render_attribute(key, value) for key, value in attributes.items())
    if name in VOID:
        return Html(f"<{name}{head}>")
    return Html(f"<{name}{head}>{join_html(*children)}</{name}>")


def join_html(*children: Child) -> Html:
    """Several pieces, one after the other."""
    return Html("".join(map(_render_child, children)))


def _render_child(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Html):
        return child
    if isinstance(child, str):
        return escape_text(child)
    if isinstance(child, int):
        return str(child)
    return "".join(map(_render_child, child))


def _render_attribute(name: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    shown = name.rstrip("_").replace("_", "-")
    return f" {shown}" if value is True else f' {shown}="{escape_text(str(value))}"'


def escape_text(text: str) -> str:
    """Text as HTML shows it. Characters that would change how others are read are replaced."""
    if not text.isprintable():
        text = "".join(char if char.isprintable() or char in "\n\t" else "\ufffd" for char in text)
    return escape(text[:TEXT_MAX_CHARS], quote=True)
