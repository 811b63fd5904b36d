"""Locations have bounds, so that every file of a table there has a name that can be written."""

from __future__ import annotations

import pytest

from penstock.errors import LocationRefused
from penstock.storage.locations import LENGTH_MAX, PART_MAX_BYTES, PARTS_MAX, check_under, normalise_location

TOO_MUCH = {
    "long": "s3://lake/" + "/".join(["a" * 90] * 12),
    "a long part": "/data/" + "a" * (PART_MAX_BYTES + 1),
    "a long part of few characters": "/data/" + "é" * (PART_MAX_BYTES // 2 + 1),
    "deep": "/" + "a/" * (PARTS_MAX + 1),
    "very deep": "/data/" + "a/" * 2000,
}


@pytest.mark.parametrize("name", TOO_MUCH)
def test_a_location_that_is_too_long_is_refused(name: str) -> None:
    with pytest.raises(LocationRefused, match=r"at most|the limit is") as caught:
        check_under(TOO_MUCH[name], ["/data", "s3://lake"])
    assert len(str(caught.value)) < LENGTH_MAX + 200


@pytest.mark.parametrize(
    "location",
    ["/" + "/".join(["a"] * PARTS_MAX), "/data/" + "a" * PART_MAX_BYTES, "s3://lake/" + "a/" * 40 + "b"],
    ids=["deep", "a long part", "far below a bucket"],
)
def test_what_fits_is_taken(location: str) -> None:
    assert normalise_location(location) == location
