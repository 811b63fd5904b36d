"""Damage outside of objects that lead to each other: rows, receipts, the file itself."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

import penstock
from penstock.errors import Damaged
from penstock.model.encoding import encode
from penstock.model.objects import (
    Blob,
    CommitObject,
    Leaf,
    Node,
    Segment,
    decode_object,
)
from tests.queue.hooks import table
from tests.sweep.damage import Database, check, names_damaged, needed
from tests.sweep.oracle import receipts


def test_a_branch_that_is_not_where_its_log_says_is_named(place: Path, database: Database) -> None:
    """The log can neither lag nor lie; so one of the two was tampered with."""
    database.repoint(head=database.head().parent)
    assert "main" in names_damaged(place)


@pytest.mark.parametrize("junk", [b"", b"\xc1", b"junk", encode(("branch", "main"))])
def test_a_row_that_cannot_be_read_is_named(place: Path, database: Database, junk: bytes) -> None:
    database.replace_row("dev", junk)
    assert "dev" in names_damaged(place)


@pytest.mark.parametrize("junk", [b"", b"\xc1", b"junk", encode(("branch", "main"))])
def test_reading_a_row_that_cannot_be_read_is_damage_with_a_name(
    place: Path, database: Database, junk: bytes
) -> None:
    database.replace_row("dev", junk)
    with penstock.open(place, create=False) as lake:
        reading: list[Callable[[], object]] = [
            lambda: lake.branch("dev").head,
            lake.branches,
            lambda: lake.reflog("dev"),
            lambda: lake.branch("dev").put("x", table()),
            lambda: lake.branch("dev").delete(),
            lake.sweep,
        ]
        for read in reading:
            with pytest.raises(Damaged, match="dev"):
                read()
        lake.branch().put("x", table())  # other branches are not affected


@pytest.mark.parametrize("junk", [b"", b"\xc1", b"junk", encode(("one", "two")), encode((1,))])
def test_a_description_that_cannot_be_read_is_damage(place: Path, database: Database, junk: bytes) -> None:
    database.replace_row("@lake", junk)
    with pytest.raises(Damaged, match=place.name):
        penstock.open(place, create=False)


def test_a_file_that_is_cut_off_or_overwritten_is_damage_with_a_name(place: Path) -> None:
    path = place / "penstock.db"
    data = path.read_bytes()
    chance = random.Random(3)
    for spoiled in (
        b"this is no database at all, but quite some text" * 100,
        data[: len(data) // 2],
        data[:4096] + chance.randbytes(len(data) - 4096),
    ):
        path.write_bytes(spoiled)
        for name in ("penstock.db-wal", "penstock.db-shm"):
            (place / name).unlink(missing_ok=True)
        with pytest.raises(Damaged, match=r"penstock\.db"):
            _read_all(place)


def _read_all(place: Path) -> None:
    with penstock.open(place, create=False) as lake:
        for branch in lake.branches():
            for _ in lake.at(branch.name).entries():
                pass
        damages = lake.fsck().damages
        if damages:
            raise Damaged(f"penstock.db: {damages[0]}")


def test_reading_damaged_objects_is_damage_with_a_name(place: Path, database: Database) -> None:
    stored, wanted = database.objects(), needed(place)
    for kind in (Leaf, Node, Segment, CommitObject, Blob):
        victims = [one for one in wanted if isinstance(decode_object(stored[one]), kind)]
        for one in victims:
            database.replace(one, stored[one][:-1] + b"\x00\x01\x02")
        with pytest.raises(Damaged) as caught, penstock.open(place, create=False) as lake:
            _ = [
                lake.at(commit.id).get(key)
                for commit in lake.log()
                for key in ("key001", "big", "t1", "last")
            ]
        named = caught.value.details["objects"]
        assert set(named) <= {one.hex() for one in victims}
        for one in victims:
            database.replace(one, stored[one])
    assert check(place).damages == ()


def test_receipts_are_checked_too(place: Path, database: Database) -> None:
    """Nothing leads to them, but what they say decides whether a request is done twice."""
    with penstock.open(place, create=False) as lake:
        victim = min(receipts(lake.kernel.store))
    database.replace(victim, b"\xc1")
    assert victim.hex() in names_damaged(place)


def test_a_request_that_meets_a_damaged_receipt_is_told_so(place: Path, database: Database) -> None:
    with penstock.open(place, create=False) as lake:
        before = receipts(lake.kernel.store)
        lake.branch().put("once", table(), idempotency_key="k")
        victim = (receipts(lake.kernel.store) - before).pop()
        for junk in (b"\xc1", encode(Blob(b"x"))):
            database.replace(victim, junk)
            with pytest.raises(Damaged, match=victim.hex()):
                lake.branch().put("once", table(), idempotency_key="k")
            with pytest.raises(Damaged, match=victim.hex()):
                lake.outcome("k")
        lake.branch().put("other", table())
        assert len(lake.log("main", text="put once")) == 1
