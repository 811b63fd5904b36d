"""A place whose files may also lie at other places: those are read there, and nothing is written to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from penstock.storage.buckets import BucketEntry
from penstock.storage.places import Place

Answer = TypeVar("Answer")


class LinkedPlace(Place):
    """A folder of files, and others that are read by their whole addresses: the ``url`` of a place in
    ``sources``, a slash, and a name there."""

    def __init__(self, place: Place, sources: Sequence[Place]) -> None:
        # What it is of itself it shares with the place, which may be closed once nobody has it any more.
        self.__dict__.update(place.__dict__)
        self._place, self.sources = place, tuple(sources)

    def read(self, names: Iterable[str]) -> Iterator[bytes | None]:
        for name in names:
            place, inside = self._find_place_and_name(name)
            yield from place.read([inside])

    def read_range(self, name: str, start: int, length: int) -> bytes | None:
        place, inside = self._find_place_and_name(name)
        return place.read_range(inside, start, length)

    def size(self, name: str) -> int | None:
        place, inside = self._find_place_and_name(name)
        return place.size(inside)

    def sizes(self, names: Iterable[str]) -> Sequence[int | None]:
        return self._ask_each_place(names, lambda place, inside: place.sizes(inside))

    def missing(self, names: Sequence[str]) -> Sequence[str]:
        gone = self._ask_each_place(names, _are_missing)
        return [name for name, is_gone in zip(names, gone, strict=True) if is_gone]

    def look(self, name: str) -> BucketEntry | None:
        place, inside = self._find_place_and_name(name)
        entry = place.look(inside)
        return None if entry is None else entry._replace(key=name)

    def find_source(self, name: str) -> Place | None:
        """The place that a file is read at which is not here; ``None`` for one that is."""
        return next((source for source in self.sources if name.startswith(f"{source.url}/")), None)

    def _find_place_and_name(self, name: str) -> tuple[Place, str]:
        """Where a file is read, and its name there."""
        source = self.find_source(name)
        return (self._place, name) if source is None else (source, name.removeprefix(f"{source.url}/"))

    def _ask_each_place(
        self, names: Iterable[str], ask: Callable[[Place, Sequence[str]], Sequence[Answer]]
    ) -> list[Answer]:
        """What each place answers about its files, in the order of the names."""
        located = [self._find_place_and_name(name) for name in names]
        answers: dict[int, Answer] = {}
        for holder in {id(place): place for place, _ in located}.values():
            at = [number for number, (place, _) in enumerate(located) if place is holder]
            answers |= dict(zip(at, ask(holder, [located[number][1] for number in at]), strict=True))
        return [answers[number] for number in range(len(located))]


def _are_missing(place: Place, names: Sequence[str]) -> list[bool]:
    gone = set(place.missing(names))
    return [name in gone for name in names]
