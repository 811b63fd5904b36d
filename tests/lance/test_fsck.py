"""Whatever is wrong with a Lance table's own tree is found."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import penstock
from penstock.formats.lance.content import LanceTable
from penstock.formats.lance.lake.table_check import LanceCheck
from penstock.formats.lance.state import (
    Changes,
    LanceTableVersion,
    OwnTag,
    apply_changes,
    decode_state,
    encode_state_into_table,
    encode_tag_key,
    encode_version_key,
)
from penstock.kernel.objects import PendingObjects
from penstock.lake.lake import Lake
from tests.lance.tables import written


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with penstock.open(tmp_path / "lake", author="tester") as lake:
        written(lake.lance(), "a", ids=[1], mode="create")
        yield lake


def content_of(lake: Lake) -> LanceTable:
    found = lake.at().get("a")
    assert isinstance(found, LanceTable)
    return found


def test_a_sound_table_has_no_flaws(lake: Lake) -> None:
    assert lake.fsck().damages == ()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({encode_tag_key("t"): OwnTag(version=9)}, "a tag 't' of version 9"),
        (
            {encode_version_key("dev", 1): LanceTableVersion(sha256=b"0" * 32)},
            "of branch 'dev', which it does not have",
        ),
        ({encode_version_key("", 2): LanceTableVersion(sha256=b"short")}, "without a size and hash"),
        (
            {encode_version_key("", 2): LanceTableVersion(chain="elsewhere/", sha256=b"0" * 32)},
            "which is not a version chain",
        ),
        ({encode_version_key("", 2): OwnTag(version=1)}, "whose kind does not match"),
    ],
    ids=["tag-of-nothing", "branch-of-nothing", "no-hash", "no-chain", "another-kind"],
)
def test_an_entry_that_leads_nowhere_is_told(lake: Lake, changes: Changes, said: str) -> None:
    content = content_of(lake)
    objects = PendingObjects(lake.kernel.objects)
    state = decode_state(content)
    wrong, blobs = apply_changes(objects, state, changes)
    objects.fresh.update(blobs)
    bad = encode_state_into_table(content, wrong)
    assert [what for _, what in LanceCheck(objects).find_flaws("a", bad) if said in what]


def test_a_state_that_cannot_be_read_or_holds_another_tree_is_told(lake: Lake) -> None:
    content, check = content_of(lake), LanceCheck(lake.kernel.objects)
    torn = msgspec.structs.replace(content, state=b"?")
    assert [name for name, what in check.find_flaws("a", torn) if "cannot be read" in what] == ["a"]
    alone = msgspec.structs.replace(content, held=(bytes(32),))
    assert [what for _, what in check.find_flaws("a", alone)] == ["does not hold the tree of its state"]
