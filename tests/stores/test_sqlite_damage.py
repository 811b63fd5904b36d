"""A damaged file is told by a typed error, whatever is damaged and whatever is asked; never by a raw one."""

from __future__ import annotations

import random
import shutil
import sqlite3
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import penstock
from penstock import IcebergTable, Lake, Settings
from penstock.errors import AdministratorError, Damaged, PenstockError
from tests.chance import RecordCounts, share, times

HASTY = Settings(write_timeout_s=0.2, tries_max=3, backoff_min_ms=0.1)
PAGE_BYTES = 4096


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of a lake with some history."""
    place = tmp_path_factory.mktemp("healthy")
    with penstock.open(place) as lake:
        for number in range(30):
            content = IcebergTable(metadata_location="s3://lake/" + "x" * number * 20)
            lake.branch().put(f"space{number % 3}.table{number}", content)
        lake.branch("dev").create()
        lake.branch("dev").drop("space0.table0")
        lake.tag("v1").create()
        lake.tag("v2").create().delete()
    return (place / "penstock.db").read_bytes()


def lake_of(place: Path, data: bytes | bytearray) -> Path:
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    (place / "penstock.db").write_bytes(data)
    return place


def flip_a_bit(data: bytearray, chance: random.Random) -> None:
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def scramble_bytes(data: bytearray, chance: random.Random) -> None:
    start = chance.randrange(len(data) - 16)
    data[start : start + 16] = chance.randbytes(16)


def blank_a_page(data: bytearray, chance: random.Random) -> None:
    start = chance.randrange(len(data) // PAGE_BYTES) * PAGE_BYTES
    data[start : start + PAGE_BYTES] = bytes(PAGE_BYTES)


def copy_a_page_over_another(data: bytearray, chance: random.Random) -> None:
    start, end = (chance.randrange(len(data) // PAGE_BYTES) * PAGE_BYTES for _ in range(2))
    data[end : end + PAGE_BYTES] = data[start : start + PAGE_BYTES]


def cut_off_the_end(data: bytearray, chance: random.Random) -> None:
    del data[chance.randrange(1, len(data)) :]


HARM = [flip_a_bit, scramble_bytes, blank_a_page, copy_a_page_over_another, cut_off_the_end]
Harm = Callable[[bytearray, random.Random], None]


def uses(lake: Lake) -> list[Callable[[], object]]:
    """Everything a person does with a lake."""
    main = lake.branch()
    return [
        lambda: list(lake.at("main").entries()),
        lambda: lake.log("dev"),
        lambda: lake.reflog("main"),
        lambda: (lake.branches(), lake.tags(), lake.deleted()),
        lambda: main.put("space0.new", IcebergTable(metadata_location="x")),
        lambda: lake.merge("dev", "main"),
        lambda: lake.branch("more").create(),
        lambda: lake.sweep(dry_run=True),
        lake.fsck,
    ]


def use_everything(place: Path, met: Counter[str]) -> None:
    """Open and use a lake; errors of Penstock's are counted, all others are raised."""
    try:
        lake = penstock.open(place, settings=HASTY)
    except PenstockError as error:
        met[error.code] += 1
        return
    try:
        for use in uses(lake):
            try:
                use()
                met["ok"] += 1
            except PenstockError as error:
                met[error.code] += 1
    finally:
        lake.close()


def harm_and_use(healthy: bytes, harm: Harm, place: Path, chance: random.Random, times: int) -> Counter[str]:
    met: Counter[str] = Counter()
    raw: list[str] = []
    for number in range(times):
        data = bytearray(healthy)
        harm(data, chance)
        try:
            use_everything(lake_of(place, data), met)
        except Exception:
            raw.append(f"harm number {number}:\n{traceback.format_exc(limit=-2)}")
    assert not raw, "\n".join(raw[:5])
    return met


@pytest.mark.parametrize("harm", HARM)
def test_any_harm_to_the_file_is_a_typed_error(healthy: bytes, harm: Harm, tmp_path: Path, seed: int) -> None:
    met = harm_and_use(healthy, harm, tmp_path / "lake", random.Random(seed), 25)
    assert met["damaged"] > 0, f"nothing was found damaged: {met}"


@pytest.mark.reliability
@pytest.mark.parametrize("harm", share(HARM))
def test_any_harm_to_the_file_is_a_typed_error_for_long(
    healthy: bytes, harm: Harm, tmp_path: Path, seed: int, record_counts: RecordCounts
) -> None:
    met = harm_and_use(healthy, harm, tmp_path / "lake", random.Random(seed), times(1500))
    record_counts(met)
    assert met["damaged"] > 0, f"nothing was found damaged: {met}"


def test_a_file_that_never_was_a_database_is_damaged(tmp_path: Path, seed: int) -> None:
    for data in (b"not a database at all", random.Random(seed).randbytes(50_000), b"\0" * 8192):
        with pytest.raises(AdministratorError, match=r"penstock\.db"):
            penstock.open(lake_of(tmp_path / "lake", data)).fsck()


def test_a_damaged_lake_names_its_file(healthy: bytes, tmp_path: Path) -> None:
    data = bytearray(healthy)
    data[PAGE_BYTES:] = bytes(len(data) - PAGE_BYTES)
    place = lake_of(tmp_path / "lake", data)
    with pytest.raises(Damaged, match=r"penstock\.db is damaged"):
        penstock.open(place)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", ["main", "v1", "v2", "@lake"])
def test_harm_to_a_row_is_a_typed_error(healthy: bytes, name: str, tmp_path: Path, seed: int) -> None:
    """The bytes of a row are not covered by a hash, so what they decode to may be anything."""
    chance = random.Random(seed)
    met: Counter[str] = Counter()
    raw: list[str] = []
    place = lake_of(tmp_path / "lake", healthy)
    with sqlite3.connect(place / "penstock.db") as connection:
        (data,) = connection.execute("SELECT data FROM refs WHERE name = ?", (name,)).fetchone()
    connection.close()
    harmed = [data[:length] for length in range(0, len(data), 7)]
    for _ in range(40):
        flipped = bytearray(data)
        flip_a_bit(flipped, chance)
        harmed.append(bytes(flipped))
    for bad in harmed:
        place = lake_of(tmp_path / "lake", healthy)
        with sqlite3.connect(place / "penstock.db") as connection:
            connection.execute("UPDATE refs SET data = ? WHERE name = ?", (bad, name))
        connection.close()
        try:
            use_everything(place, met)
        except Exception:
            raw.append(f"{name} = {bad.hex()}:\n{traceback.format_exc(limit=-2)}")
    assert not raw, f"{len(raw)} of {len(harmed)}:\n" + "\n".join(raw[:5])
    assert met["damaged"] > 0


def test_harm_to_the_text_of_the_schema_is_a_typed_error(healthy: bytes, tmp_path: Path) -> None:
    """SQLite puts the text into its message, and it is no longer text."""
    for harmed in (b"CREATE TABL\xe7 objects", b"CREATE TABLE obj\xff\xfets"):
        data = healthy.replace(b"CREATE TABLE objects", harmed)
        assert data != healthy
        with pytest.raises(AdministratorError, match=r"penstock\.db"):
            penstock.open(lake_of(tmp_path / "lake", data))


@pytest.mark.parametrize(
    ("column", "value"),
    [("data", None), ("data", "text"), ("data", 1.5), ("referenced_us", None), ("referenced_us", "text")],
)
def test_a_column_that_holds_another_type_is_a_typed_error(
    healthy: bytes, column: str, value: object, tmp_path: Path
) -> None:
    """A flipped bit in the head of a record makes a number, or nothing, of what was bytes."""
    place = lake_of(tmp_path / "lake", healthy)
    connection = sqlite3.connect(place / "penstock.db", isolation_level=None)
    connection.execute("PRAGMA writable_schema=ON")
    connection.execute("UPDATE sqlite_master SET sql = replace(sql, 'NOT NULL', '') WHERE name = 'objects'")
    connection.close()
    connection = sqlite3.connect(place / "penstock.db", isolation_level=None)
    connection.execute(f"UPDATE objects SET {column} = ?", (value,))
    connection.close()
    met: Counter[str] = Counter()
    use_everything(place, met)
    assert met["damaged"] > 0


def test_harm_to_any_object_is_found_by_fsck_by_the_objects_id(
    healthy: bytes, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    place = lake_of(tmp_path / "lake", healthy)
    with penstock.open(place) as lake:
        assert lake.fsck().damages == ()
    with sqlite3.connect(place / "penstock.db") as connection:
        ids = [one for (one,) in connection.execute("SELECT id FROM objects ORDER BY id")]
    connection.close()
    unnoticed = []
    for one in chance.sample(ids, 40):
        place = lake_of(tmp_path / "lake", healthy)
        with sqlite3.connect(place / "penstock.db") as connection:
            (data,) = connection.execute("SELECT data FROM objects WHERE id = ?", (one,)).fetchone()
            harmed = bytearray(data)
            flip_a_bit(harmed, chance)
            connection.execute("UPDATE objects SET data = ? WHERE id = ?", (bytes(harmed), one))
        connection.close()
        with penstock.open(place) as lake:
            if b"receipt" not in data[:9] and not any(
                one.hex() in str(damage) for damage in lake.fsck().damages
            ):
                unnoticed.append(one.hex())
    assert unnoticed == []
