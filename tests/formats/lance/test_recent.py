"""The newest versions of a table are beside its tree, and nobody who reads them can tell."""

from __future__ import annotations

import random
from uuid import UUID

import msgspec
import pytest

from penstock.formats.lance.content import LanceTable
from penstock.formats.lance.lake.table_check import LanceCheck
from penstock.formats.lance.state import (
    Entry,
    LanceState,
    LanceTableVersion,
    LanceVersionReader,
    OwnBranch,
    OwnTag,
    RecentVersion,
    add_next_version,
    apply_changes,
    decode_state,
    encode_branch_key,
    encode_state_into_table,
    encode_tag_key,
    encode_version_key,
    list_differing_keys,
    parse_version_key,
)
from penstock.kernel.objects import INLINE_MAX_BYTES, Objects, PendingObjects
from penstock.model.content import encode_checked_content
from penstock.stores.memory import MemoryStore

LOCATION = "s3://a-bucket-of-some-company/warehouse/8b0c7d2e-6a0a-4c53-9f0e-4a0f3f1f2a11"
EMPTY = LanceTable(id=UUID(int=1), location=LOCATION)


def version_of_number(number: int) -> LanceTableVersion:
    staged = f"_versions/{2**64 - 1 - number:020d}.manifest-8b0c7d2e-6a0a-4c53-9f0e-4a0f3f1f2a11"
    return LanceTableVersion(
        staged=staged, size=500 + number, sha256=number.to_bytes(32, "big"), time_us=1_763_200_000
    )


class Table:
    """A table that changes step by step, and all entries that it should have."""

    def __init__(self) -> None:
        self.objects = PendingObjects(Objects(MemoryStore()))
        self.content = encode_state_into_table(EMPTY, LanceState())
        self.entries: dict[bytes, Entry] = {}
        self.nodes = 0
        """How many steps wrote to the tree."""

    @property
    def state(self) -> LanceState:
        return decode_state(self.content)

    @property
    def versions(self) -> LanceVersionReader:
        return LanceVersionReader(self.objects, self.state)

    def numbers(self, branch: str) -> list[int]:
        """The versions that one of Lance's branches should have, newest first."""
        named = (parse_version_key(key) for key in self.entries)
        return sorted((one[1] for one in named if one and one[0] == branch), reverse=True)

    def add(self, branch: str = "") -> None:
        number = next(iter(self.numbers(branch)), 0) + 1
        one = RecentVersion(branch, number, version_of_number(number))
        self.content, blobs = add_next_version(self.objects, self.content, self.state, one)
        self._keep(blobs)
        self.entries[encode_version_key(branch, number)] = one.version

    def change(self, changes: dict[bytes, Entry | None]) -> None:
        state, blobs = apply_changes(self.objects, self.state, changes)
        self.content = encode_state_into_table(self.content, state)
        self._keep(blobs)
        for key, one in changes.items():
            if one is None:
                self.entries.pop(key, None)
            else:
                self.entries[key] = one

    def _keep(self, blobs: dict[bytes, bytes]) -> None:
        self.objects.fresh.update(blobs)
        self.nodes += bool(blobs)

    def check(self, *branches: str) -> None:
        """What is read is what should be there, by every way to read it."""
        versions = self.versions
        for branch in branches:
            numbers = self.numbers(branch)
            there = [(number, self.entries[encode_version_key(branch, number)]) for number in numbers]
            assert list(versions.list_versions(branch)) == there
            assert versions.find_newest(branch) == (there[0] if there else None)
            for number in range(max(numbers, default=0) + 3):
                assert versions.get_version(branch, number) == dict(there).get(number)
                assert list(versions.list_versions(branch, number)) == [
                    one for one in there if one[0] < number
                ]
        tags = {key[1:].decode(): one for key, one in self.entries.items() if isinstance(one, OwnTag)}
        assert versions.list_tags() == tags
        assert self.state.newest == max(self.numbers(""), default=0)
        assert list(LanceCheck(self.objects).find_flaws("t", self.content)) == []


@pytest.mark.parametrize("seed", range(6))
def test_whatever_was_done_the_table_has_just_that(seed: int) -> None:
    chance, table = random.Random(seed), Table()
    table.add()
    table.change({encode_branch_key("dev"): OwnBranch(version=1)})
    for _ in range(60):
        what = chance.random()
        if what < 0.8:
            table.add(chance.choice(("", "", "dev")))
        elif what < 0.9:
            table.change({encode_tag_key(f"t{chance.randrange(3)}"): OwnTag(version=table.numbers("")[0])})
        else:
            tagged = {one.version for one in table.entries.values() if isinstance(one, OwnTag)}
            old = [number for number in table.numbers("")[1:] if number not in tagged]
            gone = chance.sample(old, min(len(old), 2))
            table.change({encode_version_key("", number): None for number in gone})
        table.check("", "dev", "never was")


def test_most_versions_leave_the_tree_as_it_is_and_the_lakes_map_keeps_the_content_in_place() -> None:
    table = Table()
    for _ in range(100):
        table.add()
        assert len(encode_checked_content(table.content)) <= INLINE_MAX_BYTES
        assert table.state.recent[-1].number == table.state.newest, "the newest one is never looked up"
    assert 10 <= table.nodes <= 34


def test_a_table_with_much_else_in_its_content_has_all_but_its_newest_version_in_the_tree() -> None:
    table = Table()
    crowded = msgspec.structs.replace(table.state, properties={"note": "x" * 2000})
    table.content = encode_state_into_table(table.content, crowded)
    for _ in range(5):
        table.add()
        assert len(table.state.recent) == 1
        table.check("")


@pytest.mark.parametrize("seed", range(4))
def test_no_difference_of_two_states_is_missed(seed: int) -> None:
    chance, table = random.Random(seed), Table()
    seen = [(table.state, dict(table.entries))]
    for _ in range(30):
        if chance.random() < 0.8 or len(table.numbers("")) < 3:
            table.add()
        else:
            table.change({encode_version_key("", chance.choice(table.numbers("")[1:])): None})
        seen.append((table.state, dict(table.entries)))
    for _ in range(40):
        (before, was), (after, now) = chance.sample(seen, 2)
        differing = {key for key in was.keys() | now.keys() if was.get(key) != now.get(key)}
        assert differing <= set(list_differing_keys(table.objects, before, after))


@pytest.mark.parametrize(
    ("recent", "said"),
    [
        ((RecentVersion("", 2, version_of_number(2)),), "a version 2 after version 3"),
        (
            (RecentVersion("", 5, version_of_number(5)), RecentVersion("", 4, version_of_number(4))),
            "4 after version 5",
        ),
        ((RecentVersion("gone", 1, version_of_number(1)),), "of branch 'gone', which it does not have"),
        ((RecentVersion("", 4, LanceTableVersion(sha256=b"short")),), "without a size and hash"),
    ],
    ids=["older-than-the-tree", "out-of-order", "of-no-branch", "no-hash"],
)
def test_versions_beside_the_tree_that_cannot_be_are_told(
    recent: tuple[RecentVersion, ...], said: str
) -> None:
    table = Table()
    for _ in range(3):
        table.add()
    table.change({encode_tag_key("t"): OwnTag(version=3)})
    wrong = encode_state_into_table(table.content, msgspec.structs.replace(table.state, recent=recent))
    assert [what for _, what in LanceCheck(table.objects).find_flaws("t", wrong) if said in what]
