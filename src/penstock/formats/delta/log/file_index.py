"""The files of a version by the bounds of their columns, for who asks for a few of them again and again.

The bounds of a column are read from all statistics once. Then a condition is held against bounds alone, and
only files that these do not rule out are looked at as a whole.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from hashlib import blake2b
from operator import ge, gt, le, lt
from sys import getsizeof
from threading import Lock
from typing import Any, Final

from penstock.formats.delta.log.packed_lines import PackedLines
from penstock.formats.delta.protocol.actions import Add, decode_path
from penstock.formats.delta.rows.pruning import BoundedColumn, BoundTest, FilePruner, bounds_reader

_HASH_BYTES: Final = 8
_POINTER_BYTES: Final = 8


class FileIndex:
    """The files of a version. May be used by many threads."""

    def __init__(self, lines: PackedLines[Add], *, is_own: bool) -> None:
        """``is_own`` says that nobody else holds the lines."""
        self._lines, self._is_own = lines, is_own
        self._bounds: dict[BoundedColumn, _ColumnBounds] = {}
        self._names: array[int] | None = None
        self._lock = Lock()

    @property
    def memory_bytes(self) -> int:
        """About how much memory it takes."""
        lines = self._lines.memory_bytes if self._is_own else 0
        names = 0 if self._names is None else getsizeof(self._names)
        return lines + names + sum(bounds.memory_bytes for bounds in list(self._bounds.values()))

    def find_files(self, pruner: FilePruner) -> Iterator[Add]:
        """The files that may have rows for which a condition is true."""
        return filter(pruner.may_match, self._list_candidates(pruner.bound_tests))

    def is_ready(self, pruner: FilePruner) -> bool:
        """Whether the bounds are known that tell most of what a condition leaves out."""
        return any(test.column in self._bounds for test in pruner.bound_tests)

    def find_names(self, names: Iterable[str]) -> set[str]:
        """Of some decoded paths, those that are files of the version."""
        hashes = self._hash_names()
        own_names = set()
        for name in names:
            hashed = _hash_name(name)
            place = bisect_left(hashes, hashed)
            if place < len(hashes) and hashes[place] == hashed:
                own_names.add(name)
        return own_names

    def _hash_names(self) -> array[int]:
        with self._lock:
            if self._names is None:
                paths = (decode_path(file.path) for file in self._lines.read_actions())
                self._names = array("Q", sorted(map(_hash_name, paths)))
            return self._names

    def _list_candidates(self, tests: Sequence[BoundTest]) -> Iterator[Add]:
        """The files that the bounds of columns do not rule out."""
        if not tests:
            yield from self._lines.read_actions()
            return
        bounds = self._read_bounds({test.column for test in tests})
        for number in range(self._lines.pack_count):
            places: Sequence[int] | None = None
            for test in tests:
                places = bounds[test.column].find_places(number, test, places)
            if places:
                actions = self._lines.read_pack(number)
                yield from (actions[place] for place in places)

    def _read_bounds(self, columns: Collection[BoundedColumn]) -> dict[BoundedColumn, _ColumnBounds]:
        with self._lock:
            missing = [column for column in columns if column not in self._bounds]
            if missing:
                read = bounds_reader(missing)
                new_bounds = [_ColumnBounds() for _ in missing]
                for number in range(self._lines.pack_count):
                    pairs = list(map(read, self._lines.read_pack(number)))
                    for place, bounds in enumerate(new_bounds):
                        bounds.add_bounds([pair[place] for pair in pairs])
                self._bounds.update(zip(missing, new_bounds, strict=True))
            return {column: self._bounds[column] for column in columns}


class _ColumnBounds:
    """The smallest and the largest value of a column in each file, pack by pack."""

    def __init__(self) -> None:
        self._lows: list[list[Any]] = []
        self._highs: list[list[Any]] = []
        self.memory_bytes = 0

    def add_bounds(self, pairs: Sequence[tuple[Any, Any]]) -> None:
        self._lows.append([low for low, _ in pairs])
        self._highs.append([high for _, high in pairs])
        self.memory_bytes += sum(getsizeof(low) + getsizeof(high) + 2 * _POINTER_BYTES for low, high in pairs)

    def find_places(self, pack: int, test: BoundTest, among: Sequence[int] | None) -> Sequence[int]:
        """The files of a pack, or of some of them, that a part of a condition does not rule out."""
        lows, highs = self._lows[pack], self._highs[pack]
        places: Sequence[int] = range(len(lows)) if among is None else among
        if (lowest := test.lowest) is not None:
            reaches = gt if test.is_lowest_out else ge
            places = [at for at in places if (high := highs[at]) is None or reaches(high, lowest)]
        if (highest := test.highest) is not None:
            stays = lt if test.is_highest_out else le
            places = [at for at in places if (low := lows[at]) is None or stays(low, highest)]
        return places


def _hash_name(name: str) -> int:
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=_HASH_BYTES).digest()
    return int.from_bytes(digest, "little")
