"""Rows that deletion vectors name, as words of bitmaps.

A vector is held as those of its words, of 64 rows each, that name any row. So a few rows take little room in
this process, whatever the size of their file, and all rows of a file take about twice their bits.
"""

from __future__ import annotations

import gzip
import json
from array import array
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from sys import byteorder
from typing import Any, Final, TypeVar

import msgspec

from penstock.errors import InvalidRequest
from penstock.formats.delta.errors import InvalidLog
from penstock.formats.delta.protocol.actions import Add, DeletionVector, Remove
from penstock.formats.delta.rows.file_addresses import name_inside
from penstock.formats.delta.rows.footer_bytes import read_footer_bytes
from penstock.formats.delta.rows.vectors import check_cardinality, read_uncounted_bitmap
from penstock.formats.rows.arrow_types import pa, pc, pq
from penstock.storage.places import Place

READERS: Final = 8
"""How many vectors are read at once."""
READ_AHEAD: Final = 256
"""How many are asked for before the first of them is used."""
WORDS_MAX: Final = 50_000_000
"""How many words are held: about one gigabyte of them."""
BROADCAST_MAX_WORDS: Final = 1_000_000
"""So many words every executor can hold. More are sorted and merged with the rows of the files."""
WORD_ROWS: Final = 64
"""How many rows a word stands for."""
WORD_BYTES: Final = WORD_ROWS // 8
_WORD_MASK: Final = (1 << WORD_ROWS) - 1
"""Words are signed to Arrow."""

File = TypeVar("File", Add, Remove)


class BitmapWords(msgspec.Struct, frozen=True):
    """Rows of a file, as words of a bitmap of which none is zero."""

    numbers: Any
    """Of the words in the bitmap: an Arrow array of 64-bit integers, as are the words. The first row of a
    word is its lowest bit."""
    words: Any
    rows: int
    """How many rows it names."""

    @classmethod
    def from_bitmap(cls, bitmap: bytes | bytearray) -> BitmapWords:
        """Those of a bitmap of whole words."""
        data = bitmap
        if byteorder == "big":
            held = array("q", bytes(bitmap))
            held.byteswap()
            data = held.tobytes()
        size = len(data) // WORD_BYTES
        everything = pa.Array.from_buffers(pa.int64(), size, [None, pa.py_buffer(data)])
        numbers = pc.indices_nonzero(everything)
        words = everything.take(numbers)
        return cls(numbers.cast(pa.int64()), words, _count_bits(words))

    @classmethod
    def from_numbered_words(cls, numbers: Any, words: Any) -> BitmapWords:
        """Words with their numbers, of which none is zero."""
        return cls(numbers, words, _count_bits(words))

    @property
    def bits(self) -> int:
        """A number with a bit for each row of the file, the first row in the lowest."""
        if not len(self.words):
            return 0
        bitmap = array("Q", bytes(WORD_BYTES * (pc.max(self.numbers).as_py() + 1)))
        for number, word in zip(self.numbers.to_pylist(), self.words.to_pylist(), strict=True):
            bitmap[number] = word & _WORD_MASK
        if byteorder == "big":
            bitmap.byteswap()
        return int.from_bytes(bitmap.tobytes(), "little")

    def subtract_rows(self, other: BitmapWords) -> BitmapWords:
        """The rows that only this one names."""
        theirs = dict(zip(other.numbers.to_pylist(), other.words.to_pylist(), strict=True))
        pairs = zip(self.numbers.to_pylist(), self.words.to_pylist(), strict=True)
        remaining = [(number, word & ~theirs.get(number, 0)) for number, word in pairs]
        numbers, words = ([pair[at] for pair in remaining if pair[1]] for at in (0, 1))
        return BitmapWords.from_numbered_words(pa.array(numbers, pa.int64()), pa.array(words, pa.int64()))


def _count_bits(words: Any) -> int:
    return int.from_bytes(_to_array(words).tobytes(), byteorder).bit_count()


def _to_array(numbers: Any) -> array[int]:
    start, size = numbers.offset * WORD_BYTES, len(numbers) * WORD_BYTES
    return array("q", numbers.buffers()[1].slice(start, size).to_pybytes() if size else b"")


NONE: Final = BitmapWords.from_bitmap(b"")


def read_deletion_vectors(place: Place, files: Iterable[File]) -> Iterator[tuple[File, BitmapWords | None]]:
    """Files, in their order, with the rows that their deletion vectors name; ``None`` if they have none.

    Several vectors are read at once. ``InvalidLog`` if one is missing, or is not what the log says.
    """
    rest = iter(files)
    with ThreadPoolExecutor(READERS) as threads:
        while some := list(islice(rest, READ_AHEAD)):
            pending_words = [
                None
                if (vector := next_file.deletion_vector) is None
                else threads.submit(_read_vector, place, next_file, vector)
                for next_file in some
            ]
            for file, words in zip(some, pending_words, strict=True):
                yield file, None if words is None else words.result()


def pack_words(named: Iterable[tuple[int, BitmapWords]]) -> bytes:
    """Words of files, by the numbers of these and in their order, as Spark's JVM takes them.

    Compressed numbers of 64 bits, the lowest byte first: of each word the number of its file, that of its
    first row, and the word.
    """
    packed = bytearray()
    for file, words in named:
        numbers = array("q", bytes(WORD_BYTES * 3 * len(words.words)))
        numbers[0::3] = array("q", [file]) * len(words.words)
        numbers[1::3] = _to_array(pc.multiply(words.numbers, WORD_ROWS))
        numbers[2::3] = _to_array(words.words)
        if byteorder == "big":
            numbers.byteswap()
        packed += numbers.tobytes()
    return gzip.compress(packed, compresslevel=1, mtime=0)


class WordBudget:
    """Counts the words that are held, so that a table asks for no more memory than there may be."""

    def __init__(self, place: Place) -> None:
        self._place, self._words = place, 0

    def spend_words(self, words: BitmapWords) -> None:
        """``InvalidRequest`` if these are too many, together with those before."""
        self._words += len(words.words)
        if self._words > WORDS_MAX:
            raise InvalidRequest(
                f"too many deleted rows to read at once: the deletion vectors of {self._place.url} mark "
                f"rows in more than {WORDS_MAX:,} blocks of {WORD_ROWS} rows\n  Read fewer files, by a "
                "condition ('where'), or rewrite the table's files without their deleted rows (as "
                "Delta's REORG TABLE … APPLY (PURGE) does).",
                table=self._place.url,
            )


def _read_vector(place: Place, file: Add | Remove, vector: DeletionVector) -> BitmapWords:
    try:
        count = count_rows(place, file)
        bitmap = read_uncounted_bitmap(vector, count, place.read_range, lambda path: name_inside(path, place))
        words = BitmapWords.from_bitmap(bitmap)
        check_cardinality(vector, words.rows)
    except (pa.ArrowException, ValueError, OSError) as problem:
        raise InvalidLog(
            f"{file.path} of the table {place.url} cannot be read: {problem}", table=place.url, file=file.path
        ) from None
    return words


def _find_noted_rows(file: Add | Remove) -> int | None:
    """How many rows a file has by its statistics."""
    try:
        stats = json.loads(file.stats or "{}")
    except ValueError:
        return None
    noted = stats.get("numRecords") if isinstance(stats, dict) else None
    return noted if isinstance(noted, int) and noted >= 0 else None


def is_deleted_whole(file: Add) -> bool:
    """Whether the log says that all rows of a file are deleted.

    Such a file is no part of what Spark reads: with ``spark.sql.optimizer.metadataOnly`` Spark takes it for
    granted that a file has rows.
    """
    vector = file.deletion_vector
    return vector is not None and vector.cardinality == _find_noted_rows(file)


def count_rows(place: Place, file: Add | Remove) -> int:
    """How many rows a file has, deleted ones too: by its statistics, else by its footer."""
    if (noted := _find_noted_rows(file)) is not None:
        return noted
    name = name_inside(file.path, place)
    footer = read_footer_bytes(place, name, place.size(name) or 0)
    if footer is None:
        raise ValueError("there is no such file")
    return int(pq.read_metadata(pa.BufferReader(footer)).num_rows)
