"""The commit graph, drawn for histories of several shapes."""

from __future__ import annotations

from textwrap import dedent

from hypothesis import given
from hypothesis import strategies as st

from penstock.model.commit_graph import draw_commit_graph


def drawn(history: str) -> str:
    """The graph of commits written as ``name: parents``, newest first, with the name after each node."""
    commits = [line.split(":") for line in history.split("/")]
    rows = draw_commit_graph((name.strip(), parents.split()) for name, parents in commits)
    lines = []
    for (name, _), row in zip(commits, rows, strict=True):
        lines += [f"{row.node} {name.strip()}", row.below]
    return "\n".join(line.rstrip() for line in lines).rstrip()


def expect(history: str, picture: str) -> None:
    assert drawn(history) == dedent(picture).strip("\n").rstrip()


def test_a_line_of_commits_is_a_line() -> None:
    expect(
        "c: b / b: a / a:",
        """
        ● c
        │
        ● b
        │
        ● a
        """,
    )


def test_a_merge_opens_a_lane_that_ends_where_it_forked() -> None:
    expect(
        "m: b d / d: a / b: a / a:",
        """
        ●─╮ m
        │ │
        │ ● d
        │ │
        ● │ b
        │ │
        ●─╯ a
        """,
    )


def test_a_merge_of_what_was_merged_joins_the_lane_that_is_there() -> None:
    expect(
        "n: m e / m: b d / e: d / d: a / b: a / a:",
        """
        ●─╮ n
        │ │
        ●─│─╮ m
        │ │ │
        │ ● │ e
        │ │ │
        │ ●─╯ d
        │ │
        ● │ b
        │ │
        ●─╯ a
        """,
    )


def test_merges_that_crossed_each_other() -> None:
    expect(
        "x: b c / y: c b / b: a / c: a / a:",
        """
        ●─╮ x
        │ │
        ├─│─● y
        │ │ │
        ● │ │ b
        │ │ │
        │ ●─╯ c
        │ │
        ●─╯ a
        """,
    )


def test_a_merge_whose_second_parent_runs_to_the_right_already() -> None:
    expect(
        "m: a c / n: a c / c: a / a:",
        """
        ●─╮ m
        │ │
        │ ├─● n
        │ │ │
        │ ● │ c
        │ │ │
        ●─┴─╯ a
        """,
    )


def test_three_parents_at_once() -> None:
    expect(
        "m: a b c / c: a / b: a / a:",
        """
        ●─┬─╮ m
        │ │ │
        │ │ ● c
        │ │ │
        │ ● │ b
        │ │ │
        ●─┴─╯ a
        """,
    )


def test_two_roots_do_not_look_like_one_line() -> None:
    expect(
        "m: a b / a: / b:",
        """
        ●─╮ m
        │ │
        ● │ a
          │
          ● b
        """,
    )
    expect(
        "a: / b:",
        """
        ● a

          ● b
        """,
    )


def test_a_lane_that_ended_longer_ago_is_used_again() -> None:
    expect(
        "m: a b / a: / b: c / d: c / c:",
        """
        ●─╮ m
        │ │
        ● │ a
          │
          ● b
          │
        ● │ d
        │ │
        ●─╯ c
        """,
    )


def test_a_commit_can_end_a_lane_and_open_it_again() -> None:
    expect(
        "m: a d / d: a / a: b e / e: b / b:",
        """
        ●─╮ m
        │ │
        │ ● d
        │ │
        ●─┤ a
        │ │
        │ ● e
        │ │
        ●─╯ b
        """,
    )


def test_a_parent_on_the_next_page_leaves_its_lane_open() -> None:
    assert drawn("m: a b / a: z").splitlines()[-1] == "│ │"


@given(st.lists(st.lists(st.integers(1, 6), max_size=3, unique=True), min_size=1, max_size=25))
def test_every_row_has_one_node_and_every_parent_a_lane(steps: list[list[int]]) -> None:
    # Commit number i has the parents i + s for each step s; those beyond the end are never reached.
    commits = [(str(i), [str(i + s) for s in parents]) for i, parents in enumerate(steps)]
    waiting: set[str] = set()
    for (name, parents), row in zip(commits, draw_commit_graph(commits), strict=True):
        waiting = (waiting - {name}) | set(parents)
        assert row.node.count("●") == 1
        # Two lanes may lead to one commit; none may be missing.
        assert row.below.count("│") >= len(waiting)
