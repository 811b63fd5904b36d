"""HTML is made of elements, in which text cannot become one."""

from __future__ import annotations

from html import unescape
from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from penstock.server.ui.elements import escape_text, join_html, make_element
from penstock.server.ui.graph import draw_graph


def test_text_is_escaped_and_elements_are_not() -> None:
    assert (
        make_element("p", "<b>", make_element("b", "&"), None, 3, [["x"], "y"])
        == "<p>&lt;b&gt;<b>&amp;</b>3xy</p>"
    )
    assert join_html("<", make_element("br")) == "&lt;<br>"


def test_attributes_are_quoted_or_left_out() -> None:
    made = make_element("input", class_='a"b', data_key="/", required=True, disabled=False, value=None)
    assert made == '<input class="a&quot;b" data-key="/" required>'


@given(st.text())
def test_no_text_becomes_an_element(text: str) -> None:
    found: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            found.append(tag)

    Reader().feed(make_element("p", text, title=text))
    assert found == ["p"]


@given(st.text())
def test_what_can_be_printed_stays(text: str) -> None:
    shown = unescape(escape_text(text))
    assert len(shown) == len(text)
    assert all(mine == other or not other.isprintable() for mine, other in zip(shown, text, strict=True))


def test_a_graph_has_a_picture_for_each_commit() -> None:
    pictures = draw_graph([("m", ("a", "b")), ("b", ("r",)), ("a", ("r",)), ("r", ())])
    assert [picture.count("<circle") for picture in pictures] == [1, 1, 1, 1]
    assert "<path" in pictures[0]
    assert pictures[0].count('y2="100%"') == 2
    assert 'y2="100%"' not in pictures[-1]


@given(st.lists(st.sets(st.integers(1, 4), max_size=3), max_size=12))
def test_any_history_can_be_drawn(steps: list[set[int]]) -> None:
    commits = [(str(n), [str(n + step) for step in sorted(parents)]) for n, parents in enumerate(steps)]
    assert len(draw_graph(commits)) == len(commits)
    assert len(draw_graph(commits, is_connected=False)) == len(commits)
