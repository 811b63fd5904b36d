"""A key may hold a table of one format on one branch, and of another on another: neither reads what the other
was asked to do."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import penstock
from penstock.lake.lake import Lake
from penstock.model.keys import Key
from penstock.model.operations import Delete

KEY = "sales.orders"
FORMATS = ("delta", "lance", "files")
PAIRS = pytest.mark.parametrize(("ours", "theirs"), list(permutations(FORMATS, 2)))


def write(lake: Lake, branch: str, kind: str) -> None:
    table = lake.table(KEY, branch)
    if kind == "files":
        table.files.write({"a.csv": b"1\n"})
    else:
        table.write(pa.table({"id": [1]}), format=kind)


def kept_intents(lake: Lake, branch: str) -> set[str]:
    """The formats that a branch's newest commit names at the key."""
    commit = lake.kernel.objects.get_commit(bytes.fromhex(lake.branch(branch).head))
    found = lake.kernel.objects.read_intents(commit)
    return {one.format for one in found if Key.decode(one.key) == Key.parse(KEY)}


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Lake]:
    with penstock.open(tmp_path / "lake", create=True) as lake:
        lake.branch().create_namespace("sales")
        lake.branch("dev").create()
        yield lake


@PAIRS
@pytest.mark.parametrize("how", ["merge", "transplant"])
def test_a_table_of_another_format_can_be_left_out(two: Lake, ours: str, theirs: str, how: str) -> None:
    write(two, "main", ours)
    write(two, "dev", theirs)
    before = two.at("main").get(KEY)
    if how == "merge":
        two.merge("dev", "main", default="drop")
    else:
        two.branch("dev").create_namespace("more")
        two.transplant([two.branch("dev").head + "~1", two.branch("dev").head], "main", default="drop")
    assert two.at("main").get(KEY) == before
    assert kept_intents(two, "main") <= {ours}
    two.branch("dev").delete()
    two.branch("later").create()  # what was noted of it can be read by what comes next
    write(two, "later", ours)
    assert two.merge("later", "main").applied
    assert two.fsck().damages == ()


@PAIRS
def test_what_was_at_the_key_before_is_not_part_of_a_merge(two: Lake, ours: str, theirs: str) -> None:
    write(two, "main", ours)
    two.merge("main", "dev")
    two.commit([Delete(Key.parse(KEY))], branch="dev")
    write(two, "dev", theirs)
    two.merge("dev", "main")
    landed, brought = two.at("main").get(KEY), two.at("dev").get(KEY)
    assert landed is not None
    assert brought is not None
    assert (landed.id, landed.type) == (brought.id, brought.type)
