"""Proposals: what is read of a commit before anybody decides about it, and what is not even read."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import InvalidContent, InvalidRequest
from penstock.formats.delta.branch_log.intents import ActionsBodyFile
from penstock.formats.delta.branch_log.proposal import BODY_MAX_BYTES
from penstock.formats.delta.protocol.actions import write_commit
from penstock.stores.memory import MemoryStore
from tests.formats.delta.managed import Owner, add

BODY = write_commit([add("a")])
SHA256 = hashlib.sha256(BODY).digest()
NAME = "_penstock/bodies/mine.json"


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Owner]:
    store = MemoryStore()
    owner = Owner(store, tmp_path)
    place = owner.places.open_place(owner.create().location)
    place.create(NAME, BODY)
    yield owner
    owner.close()
    store.close()


def test_actions_in_a_file_below_the_table_are_committed(owner: Owner) -> None:
    owner.commit(ActionsBodyFile(NAME, len(BODY), SHA256))
    assert owner.paths() == {"a"}


@pytest.mark.parametrize(
    "name",
    [
        "",
        "mine.json",
        "/etc/passwd",
        "../mine.json",
        "_penstock",
        "_penstock/",
        "_penstock/mine.json",
        "_penstock/.unfinished/mine.json",
        "_penstock/.locks/1",
        "_penstock/reads/mine.json",
        "_penstock/data/part-1.parquet",
        f"_penstock/probe/{'0' * 32}",
        f"_penstock/{'a' * 32}/mine.json",
        "_penstock/bodies",
        "_penstock/bodies/",
        "_penstock/bodies//mine.json",
        "_penstock/bodies/.",
        "_penstock/bodies/..",
        "_penstock/bodies/./mine.json",
        "_penstock/bodies/../mine.json",
        "_penstock/bodies/../../_penstock/bodies/mine.json",
        "_penstock/bodies/.unfinished",
        "_penstock/bodies/folder/mine.json",
        "_penstock/bodies/a\0b",
        "_penstock/bodies/a\nb",
        "_penstock/bodies/..\\mine.json",
        "_penstock/bodies/" + "x" * 500,
        "_penstock/bodies/" + "x/" * 3000 + "y",
    ],
    ids=lambda name: repr(name)[:40],
)
def test_a_name_that_is_not_plainly_below_the_folder_of_bodies_is_refused(owner: Owner, name: str) -> None:
    with pytest.raises(InvalidRequest, match="must be in a file directly below _penstock/bodies/") as caught:
        owner.commit(ActionsBodyFile(name, len(BODY), SHA256))
    assert len(str(caught.value)) < 700


@pytest.mark.parametrize(
    "name",
    ["_penstock/bodies/none.json", "_penstock/bodies/folder", "_penstock/bodies/" + "x" * 300],
    ids=["absent", "folder", "long"],
)
def test_what_is_no_file_is_a_mistake_of_the_request(owner: Owner, name: str) -> None:
    (Path(owner.content().location) / "_penstock/bodies/folder").mkdir()
    with pytest.raises(InvalidRequest, match=r"which does not exist|cannot be used"):
        owner.commit(ActionsBodyFile(name, len(BODY), SHA256))


@pytest.mark.parametrize("size", [-1, 0, BODY_MAX_BYTES + 1, 2**62])
def test_a_size_that_cannot_be_is_refused(owner: Owner, size: int) -> None:
    with pytest.raises(InvalidRequest, match="must have 1 to"):
        owner.commit(ActionsBodyFile(NAME, size, SHA256))


@pytest.mark.parametrize(
    ("size", "sha256"),
    [(len(BODY) - 1, SHA256), (len(BODY) + 1, SHA256), (len(BODY), b"\0" * 32), (len(BODY), b"\0")],
    ids=["shorter", "longer", "another hash", "no hash"],
)
def test_a_file_with_other_bytes_is_refused(owner: Owner, size: int, sha256: bytes) -> None:
    with pytest.raises(InvalidRequest, match="does not match its size and SHA-256"):
        owner.commit(ActionsBodyFile(NAME, size, sha256))


def test_a_file_of_another_size_is_not_read(owner: Owner) -> None:
    """A sparse file of a terabyte, which would not fit into memory."""
    with (Path(owner.content().location) / "_penstock/bodies/huge").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(InvalidRequest, match="does not match its size"):
        owner.commit(ActionsBodyFile("_penstock/bodies/huge", len(BODY), SHA256))


def test_of_very_many_lines_that_cannot_be_read_the_first_thousand_are_told(owner: Owner) -> None:
    with pytest.raises(InvalidContent, match=r"… and 981 more") as caught:
        owner.commit(b"{\n" * 5_000_000)
    assert len(caught.value.details["problems"]) == 1000
    assert len(str(caught.value)) < 5000
