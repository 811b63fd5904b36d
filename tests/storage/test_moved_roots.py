"""Moved roots: each location has one place, and each place one location."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidRequest
from penstock.storage.moved_roots import MovedRoot, MovedRoots, map_roots, unmap_root

MOVED = MovedRoots([MovedRoot("s3://old", "s3://new/all"), MovedRoot("/data/a", "/ssd/a")])


@pytest.mark.parametrize(
    ("location", "place"),
    [
        ("s3://old", "s3://new/all"),
        ("s3://old/", "s3://new/all/"),
        ("s3://old/x/y", "s3://new/all/x/y"),
        ("s3://older/x", "s3://older/x"),
        ("/data/a", "/ssd/a"),
        ("/data/a/t", "/ssd/a/t"),
        ("/data/ab", "/data/ab"),
        ("/data", "/data"),
        ("", ""),
    ],
)
def test_a_location_is_mapped_by_whole_names_of_folders(location: str, place: str) -> None:
    assert MOVED.map_to_storage(location) == place
    assert MOVED.map_to_storage(place) == place
    assert not location or MOVED.map_to_lake(place) == location


def test_a_place_is_known_in_every_spelling() -> None:
    assert MOVED.map_to_lake("file:///ssd/a/t") == "/data/a/t"
    assert MOVED.map_to_lake("S3://NEW/all/t/") == "s3://old/t/"
    assert MOVED.map_to_lake("nowhere?at=all") == "nowhere?at=all"


NAMES = st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map(lambda parts: "/" + "/".join(parts))


@given(st.lists(st.tuples(NAMES, NAMES), max_size=4), st.lists(NAMES, max_size=2), NAMES)
def test_whatever_was_mapped_no_two_locations_have_one_place(
    asked: list[tuple[str, str]], roots: list[str], location: str
) -> None:
    moved: tuple[MovedRoot, ...] = ()
    for old, new in asked:
        try:
            moved = map_roots(moved, roots, old, new)
        except InvalidRequest:
            continue
    found = MovedRoots(moved)
    place = found.map_to_storage(location)
    assert found.map_to_storage(place) == place
    assert found.map_to_lake(found.map_to_lake(place)) == found.map_to_lake(place)
    if found.map_to_lake(location) == location:  # no location of the lake lies at a new place
        assert found.map_to_lake(place) == location
    for root in roots:  # and none of its roots means another place than its own, or that where it was moved
        assert found.map_to_lake(found.map_to_storage(root)) == root


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("/data", "/data", "mapped to itself"),
        ("/data", "/data/new", "they are equal or one contains the other"),
        ("/data/new", "/data", "they are equal or one contains the other"),
        ("/data", "/ssd/a/b", "they are equal or one contains the other"),
        ("/ssd", "/elsewhere", "they are equal or one contains the other"),
        ("/other", "/warehouse/x", "the lake has the root /warehouse"),
        ("/other", "/", "whole disk"),
        ("/", "/other", "whole disk"),
    ],
)
def test_a_mapping_that_could_mean_two_places_is_refused(old: str, new: str, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        map_roots((MovedRoot("/data/a", "/ssd/a"),), ["/warehouse", "/data"], old, new)


def test_a_root_that_moves_on_or_back_has_one_entry_and_remembers_where_it_was() -> None:
    once = map_roots((), ["/a"], "/a", "/b")
    twice = map_roots(once, ["/a"], "/b", "/c")
    assert twice == map_roots(once, ["/a"], "/a", "/c") == (MovedRoot("/a", "/c", ("/b",)),)
    moved = MovedRoots(twice)
    assert [moved.map_to_storage(one) for one in ("/a/t", "/b/t", "/c/t")] == ["/c/t"] * 3
    assert [moved.map_to_lake(one) for one in ("/a/t", "/b/t", "/c/t")] == ["/a/t"] * 3
    assert moved.list_known_roots("/c/t") == ("/c/t", "/a/t", "/b/t")
    back = map_roots(twice, ["/a"], "/c", "/a")
    assert unmap_root(twice, ["/a"], "/c") == unmap_root(twice, ["/a"], "/a") == back
    assert back == (MovedRoot("/a", "/a", ("/c", "/b")),)
    assert MovedRoots(back).map_to_storage("/b/t") == MovedRoots(back).map_to_lake("/c/t") == "/a/t"
    assert map_roots(back, ["/a"], "/a", "/b") == (MovedRoot("/a", "/b", ("/c",)),)
    for place in ("/b", "/d"):
        with pytest.raises(InvalidRequest, match="not a mapped root of the lake"):
            unmap_root(twice, ["/a"], place)
    with pytest.raises(InvalidRequest, match="or was, locations of moved files"):
        map_roots(twice, ["/a", "/x"], "/x", "/b")
