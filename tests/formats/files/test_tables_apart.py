"""Tables that only one side of a merge has at a key, or that both sides renamed."""

from __future__ import annotations

import pytest

from penstock import Delete, Key, Lake, Put
from penstock.errors import InvalidRequest
from tests.formats.files.lakes import EVENTS, identity, paths, write

CLICKS = "raw.clicks"

# -- new ones, by their folders ----------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["merge", "transplant"])
@pytest.mark.parametrize(
    ("modes", "come"),
    [
        ({"secret/": "drop"}, ["a/1", "b/1"]),
        ({"": "drop", "a/": "force"}, ["a/1"]),
        ({"": "drop", "b/": "normal"}, ["b/1"]),
    ],
    ids=["all but a folder", "a folder that is taken", "a folder that is merged"],
)
def test_a_table_that_is_new_comes_by_its_folders_too(
    lake: Lake, how: str, modes: dict[str, str], come: list[str]
) -> None:
    lake.branch("dev").create()
    write(lake, "a/1", "b/1", "secret/1", branch="dev")
    bring = lake.merge if how == "merge" else lake.transplant
    bring("dev", keys={EVENTS: modes})
    assert paths(lake) == come
    assert identity(lake) == identity(lake, "dev")


def test_a_new_table_of_which_every_folder_is_left_does_not_come(lake: Lake) -> None:
    lake.branch("dev").create()
    write(lake, "a/1", branch="dev")
    assert lake.merge("dev", keys={EVENTS: {"": "drop"}}).applied
    assert lake.at("main").get(EVENTS) is None


def test_what_was_left_of_a_new_table_does_not_come_by_the_next_merge(lake: Lake) -> None:
    lake.branch("dev").create()
    write(lake, "a/1", "secret/1", branch="dev")
    lake.merge("dev", keys={EVENTS: {"secret/": "drop"}})
    write(lake, "a/2", "secret/2", branch="dev")
    write(lake, "b/1")
    lake.merge("dev")
    assert paths(lake) == ["a/1", "a/2", "b/1", "secret/2"]


def test_nothing_is_settled_where_there_is_nothing_to_merge(forked: Lake) -> None:
    write(forked, "day=1/c")
    assert not forked.merge("dev", keys={EVENTS: {"": "force"}}).applied
    assert paths(forked) == ["day=1/a", "day=1/c", "day=2/a"]
    write(forked, "x", key="raw.other", branch="dev")
    with pytest.raises(InvalidRequest, match=r"given for raw\.events, which this merge does not change"):
        forked.merge("dev", keys={EVENTS: {"": "force"}})


# -- renamed on both sides ---------------------------------------------------------------------------------


def _rename(lake: Lake, branch: str, key: str = EVENTS, to: str = CLICKS) -> None:
    content = lake.at(branch).get(key)
    assert content is not None
    lake.commit([Delete(Key.parse(key)), Put(Key.parse(to), content)], branch=branch)


@pytest.fixture
def renamed(forked: Lake) -> Lake:
    """A table that two branches gave the same new name, the one after it replaced a folder."""
    write(forked, "day=1/d", branch="dev", replaced=["day=1/"])
    for branch in ("main", "dev"):
        _rename(forked, branch)
    return forked


def test_a_table_that_both_sides_renamed_is_known_as_it_was_before(renamed: Lake) -> None:
    """What one side removed does not come back with the other side's."""
    write(renamed, key=CLICKS, removed=["day=2/a"])
    write(renamed, "day=3/d", branch="dev", key=CLICKS)
    renamed.merge("dev")
    assert paths(renamed, key=CLICKS) == ["day=1/d", "day=3/d"]


def test_an_overwrite_under_the_old_name_is_one_under_the_new_name(renamed: Lake) -> None:
    write(renamed, "day=1/m", key=CLICKS, replaced=["day=1/"])
    renamed.merge("dev")
    assert paths(renamed, key=CLICKS) == ["day=1/d", "day=2/a"]


def test_an_overwrite_under_a_name_in_between_is_one_under_the_new_name(forked: Lake) -> None:
    _rename(forked, "dev", to="raw.between")
    write(forked, "day=1/d", branch="dev", key="raw.between", replaced=["day=1/"])
    _rename(forked, "dev", key="raw.between")
    _rename(forked, "main")
    write(forked, "day=1/m", key=CLICKS, replaced=["day=1/"])
    forked.merge("dev")
    assert paths(forked, key=CLICKS) == ["day=1/d", "day=2/a"]


def test_a_rename_that_both_sides_did_is_repeated_as_nothing(forked: Lake) -> None:
    _rename(forked, "dev")
    _rename(forked, "main")
    write(forked, key=CLICKS, removed=["day=2/a"])
    forked.transplant("dev")
    assert paths(forked, key=CLICKS) == ["day=1/a"]
