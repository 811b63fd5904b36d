"""What deletion vectors say is packed for Spark once, and kept as long as it surely says the same."""

from __future__ import annotations

import base64
import gzip
from array import array
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from penstock.errors import InvalidRequest
from penstock.formats.delta.errors import InvalidLog
from penstock.formats.delta.lake import scan_plan
from penstock.formats.delta.lake.scan_plan import VECTOR_BYTES, PackedWords
from penstock.formats.delta.protocol.actions import Add, DeletionVector
from penstock.formats.delta.rows import deletion_words
from penstock.storage.places import Place, Places
from tests.formats.delta.logs import add
from tests.formats.delta.rows import inline_vector, vector_data, vector_file_data, z85


def place_at(places: Places, root: Path) -> Place:
    root.mkdir(parents=True, exist_ok=True)
    return places.open_place(f"file://{root}")


def marked(name: str, vector: DeletionVector | None) -> Add:
    return replace(add(name, stats='{"numRecords":1000}'), deletion_vector=vector)


def put_vector(root: Path, number: int, rows: set[int], storage_type: str = "u") -> DeletionVector:
    """A vector in a file of its own, by its UUID or by its address."""
    data = vector_data(rows)
    content, (start,) = vector_file_data(data)
    file = root / f"deletion_vector_{UUID(int=number)}.bin"
    file.write_bytes(content)
    return DeletionVector(
        storage_type=storage_type,
        path_or_inline_dv=z85(UUID(int=number).bytes) if storage_type == "u" else f"file://{file}",
        size_in_bytes=len(data),
        cardinality=len(rows),
        offset=start,
    )


def unpacked(packed: str) -> list[tuple[int, ...]]:
    numbers = array("q", gzip.decompress(base64.b64decode(packed)))
    return [tuple(numbers[at : at + 3]) for at in range(0, len(numbers), 3)]


def test_words_are_packed_in_the_order_of_files_and_rows(places: Places, tmp_path: Path) -> None:
    place = place_at(places, tmp_path / "t")
    files = [
        marked("a", put_vector(tmp_path / "t", 1, {0, 63, 64, 999})),
        marked("b", inline_vector(vector_data({5}), 1)),
    ]
    assert unpacked(PackedWords().find_or_pack(place, files)) == [
        (0, 0, 1 | -(2**63)), (0, 64, 1), (0, 960, 1 << 39), (1, 0, 32),
    ]  # fmt: skip


def count_reads(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    reads: list[Any] = []
    read = deletion_words.read_deletion_vectors

    def counted(place: Place, files: Any) -> Any:
        reads.append(place.url)
        return read(place, files)

    monkeypatch.setattr("penstock.formats.delta.lake.scan_plan.read_deletion_vectors", counted)
    return reads


def test_vectors_are_read_once_for_the_same_files(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, packed = count_reads(monkeypatch), PackedWords()
    place, other = place_at(places, tmp_path / "t"), place_at(places, tmp_path / "other")
    a = marked("a", put_vector(tmp_path / "t", 1, {1}))
    b = marked("b", put_vector(tmp_path / "t", 2, {2}))
    put_vector(tmp_path / "other", 1, {3})  # somebody else's, of the same name
    first = packed.find_or_pack(place, [a, b])
    assert packed.find_or_pack(place, [a, b]) == first
    assert len(reads) == 1
    # Another order, another vector, another file, another table: nothing of these is known.
    assert packed.find_or_pack(place, [b, a]) != first
    again = replace(a, deletion_vector=put_vector(tmp_path / "t", 3, {1, 4}))
    assert unpacked(packed.find_or_pack(place, [again])) == [(0, 0, 2 | 16)]
    assert unpacked(packed.find_or_pack(place, [a])) == [(0, 0, 2)]
    assert unpacked(packed.find_or_pack(place, [replace(a, path="c")])) == [(0, 0, 2)]
    assert unpacked(packed.find_or_pack(other, [a])) == [(0, 0, 8)]
    assert len(reads) == 6


def test_vectors_at_addresses_of_their_own_are_read_each_time(places: Places, tmp_path: Path) -> None:
    place, packed = place_at(places, tmp_path / "t"), PackedWords()
    file = marked("a", put_vector(tmp_path / "t", 1, {1}, "p"))
    assert unpacked(packed.find_or_pack(place, [file])) == [(0, 0, 2)]
    put_vector(tmp_path / "t", 1, {2})
    assert unpacked(packed.find_or_pack(place, [file])) == [(0, 0, 4)]


def test_what_was_used_last_is_kept_in_bounded_memory(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, place = count_reads(monkeypatch), place_at(places, tmp_path / "t")
    files = [marked(str(number), inline_vector(vector_data({number}), 1)) for number in range(3)]
    packed = PackedWords(memory_max_bytes=2 * VECTOR_BYTES + 400)
    for number in (0, 1, 0, 2, 0, 1):  # where 2 comes, 1 has to go
        assert unpacked(packed.find_or_pack(place, [files[number]])) == [(0, 0, 1 << number)]
    assert len(reads) == 4


def test_what_does_not_fit_does_not_displace_the_rest(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, place = count_reads(monkeypatch), place_at(places, tmp_path / "t")
    small = marked("a", inline_vector(vector_data({1}), 1))
    large = marked("b", inline_vector(vector_data(range(0, 60_000, 64)), 938))
    large = replace(large, stats='{"numRecords":60000}')
    packed = PackedWords(memory_max_bytes=VECTOR_BYTES + 1000)
    for file in (small, large, small, large):
        packed.find_or_pack(place, [file])
    assert len(reads) == 3


def test_a_vector_that_is_not_what_the_log_says_is_refused_and_not_kept(
    places: Places, tmp_path: Path
) -> None:
    place, packed = place_at(places, tmp_path / "t"), PackedWords()
    vector = put_vector(tmp_path / "t", 1, {1, 2})
    wrong = marked("a", replace(vector, cardinality=3))
    for _ in range(2):
        with pytest.raises(InvalidLog, match="it deletes 2 rows, but the log says 3"):
            packed.find_or_pack(place, [wrong])
    assert unpacked(packed.find_or_pack(place, [marked("a", vector)])) == [(0, 0, 6)]


def test_more_words_than_are_sent_are_refused(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, packed = place_at(places, tmp_path / "t"), PackedWords()
    files = [marked(name, inline_vector(vector_data({1, 100}), 2)) for name in "ab"]
    monkeypatch.setattr(scan_plan, "WORDS_SENT_MAX", 3)
    with pytest.raises(InvalidRequest, match="too many deleted rows to send to Spark"):
        packed.find_or_pack(place, files)
    monkeypatch.setattr(scan_plan, "WORDS_SENT_MAX", 4)
    assert len(unpacked(packed.find_or_pack(place, files))) == 4
