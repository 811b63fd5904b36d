"""Pages can be used by who does not see them, or sees little: labels, headings, landmarks, contrast."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest

import penstock.server.ui
from tests.ui.conftest import VOID, Site
from tests.ui.test_pages import SHOWN

CONTRAST_MIN = 4.5
"""Of text to what is behind it, by level AA of the Web Content Accessibility Guidelines."""
STYLES = Path(penstock.server.ui.__file__).with_name("assets")


class Outline(HTMLParser):
    """What a program that reads a page aloud tells of it."""

    def __init__(self, body: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.headings: list[int] = []
        self.landmarks: list[tuple[str, str]] = []
        self.fields: list[tuple[bool, dict[str, str | None]]] = []
        self.labelled: set[str] = set()
        self.language = ""
        self.feed(body)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag in ("main", "nav", "header", "footer"):
            self.landmarks.append((tag, attributes.get("aria-label") or ""))
        if tag in ("input", "textarea", "select") and attributes.get("type") not in ("hidden", "submit"):
            self.fields.append(("label" in self.open or "aria-label" in attributes, attributes))
        if tag == "label" and attributes.get("for"):
            self.labelled.add(attributes["for"] or "")
        if tag == "html":
            self.language = attributes.get("lang") or ""
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        self.open.pop()


@pytest.mark.parametrize("path", SHOWN)
def test_a_page_can_be_read_aloud(sales: Site, path: str) -> None:
    outline = Outline(sales.get(path).reply.body.decode())
    assert outline.language
    for is_inside_label, attributes in outline.fields:
        assert is_inside_label or attributes.get("id") in outline.labelled, attributes
    assert outline.headings[0] == 1
    for before, after in pairwise(outline.headings):
        assert after <= before + 1, f"the headings of {path} leave out a level: {outline.headings}"
    assert [tag for tag, _ in outline.landmarks].count("main") == 1
    navigations = [label for tag, label in outline.landmarks if tag == "nav"]
    assert all(navigations), "each list of links has a name"
    assert len(navigations) == len(set(navigations)), "and another one than the others"


def luminance(colour: str) -> float:
    digits = colour.lstrip("#")
    digits = "".join(digit * 2 for digit in digits) if len(digits) == 3 else digits
    shares = [int(digits[start : start + 2], 16) / 255 for start in (0, 2, 4)]
    linear = [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_text_stands_out_from_what_is_behind_it(theme: int) -> None:
    """Computed from the colours of the stylesheet, which are declared once for each theme."""
    styles = "".join(file.read_text() for file in sorted(STYLES.glob("*.css")))
    values: dict[str, list[str]] = {}
    for name, colour in re.findall(r"--([a-z0-9-]+): (#[0-9a-f]{3,6})\b", styles):
        values.setdefault(name, []).append(colour)
    colours = {name: listed[theme] for name, listed in values.items() if len(listed) == 2}
    pairs = [
        *((text, back) for text in ("text", "dim", "link", "accent") for back in ("back", "raised")),
        *((text, "back") for text in ("added", "removed", "changed")),
        *((text, f"{text}-back") for text in ("added", "removed", "changed")),
        *(("text", f"{text}-back") for text in ("added", "removed", "changed")),
    ]
    for text, back in pairs:
        dark, light = sorted([luminance(colours[text]), luminance(colours[back])])
        contrast = (light + 0.05) / (dark + 0.05)
        assert contrast >= CONTRAST_MIN, f"{text} on {back}: {contrast:.2f}"


def test_what_has_the_focus_is_marked() -> None:
    styles = "".join(file.read_text() for file in sorted(STYLES.glob("*.css")))
    assert ":focus-visible" in styles
    # The link that skips to the content leads there, to an element that nobody can do anything with.
    assert re.findall(r"([^{}\n]*){[^}]*outline:\s*(?:none|0)\b", styles) == ["main:focus "]
