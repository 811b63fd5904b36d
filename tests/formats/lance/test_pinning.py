"""Lance's clean-up of one branch leaves what other branches have of it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from penstock import Lake
from penstock.formats.lance.version_pins import WHY
from tests.formats.lance.tables import keys_of, keys_seen, opened, write

START = [1, 2, 3, 4, 5]


def clean_up(lake: Lake, branch: str) -> None:
    """All that the newest version of a branch does not need."""
    opened(lake, branch).optimize.compact_files()
    opened(lake, branch).cleanup_old_versions(older_than=timedelta(0), error_if_tagged_old_versions=False)


@pytest.fixture
def lines(forked: Lake) -> Lake:
    """A branch of a branch, both of which have rows of their own."""
    write(forked, "dev", 10)
    forked.branch("feature").create("dev")
    write(forked, "feature", 11)
    return forked


def test_a_branch_of_a_branch_has_its_rows_after_that_was_cleaned_up(lines: Lake) -> None:
    clean_up(lines, "dev")
    assert keys_of(lines, "feature") == [*START, 10, 11]


@pytest.mark.parametrize("main_changed", [True, False], ids=["grafted", "whole"])
def test_what_landed_from_a_branch_of_a_branch_stays(lines: Lake, *, main_changed: bool) -> None:
    own = [20] if main_changed else []
    if main_changed:
        write(lines, "main", 20)
    lines.merge("feature", "main")
    clean_up(lines, "dev")
    clean_up(lines, "feature")
    assert keys_seen(lines) == [*START, 10, 11, *own]
    assert keys_of(lines, "feature") == [*START, 10, 11]


def test_a_branch_that_took_another_ones_versions_as_they_are_keeps_them(forked: Lake) -> None:
    forked.branch("feature").create()
    write(forked, "dev", 10)
    forked.merge("dev", "feature")
    clean_up(forked, "dev")
    assert keys_of(forked, "feature") == [*START, 10]
    forked.merge("feature", "main")
    assert keys_seen(forked) == [*START, 10]


def test_a_branch_whose_line_begins_with_a_merge_keeps_what_it_forked_from(forked: Lake) -> None:
    write(forked, "dev", 10)
    forked.branch("feature").create("dev")
    write(forked, "main", 20)
    forked.merge("main", "feature")
    clean_up(forked, "dev")
    assert keys_of(forked, "feature") == [*START, 10, 20]


def test_a_pin_says_why_it_is_there(lines: Lake) -> None:
    import lance

    dataset = lance.dataset(opened(lines, "dev").uri)
    (pin,) = dataset.tags.list().values()
    assert (pin["version"], pin["metadata"]) == (3, {"penstock": WHY})


def test_a_dry_run_pins_nothing(forked: Lake) -> None:
    import lance

    forked.branch("feature").create()
    write(forked, "dev", 10)
    forked.merge("dev", "feature", dry_run=True)
    assert lance.dataset(opened(forked, "dev").uri).tags.list() == {}
