"""Dating: the versions that rows say they were made and changed in, as the versions of another chain count.

A table whose rows have numbers of their own keeps, for every fragment, in which version each row came and in
which it was last changed. What comes from another chain as one version came in that one here.
"""

from __future__ import annotations

from typing import Final

from penstock.formats.lance.manifests import Flag, Manifest
from penstock.formats.lance.rehoming import FILES
from penstock.formats.lance.wire import Message

_CHANGED: Final = 7
_MADE: Final = 9
_RUNS: Final = 1
_VERSION: Final = 2


def dated(manifest: Manifest, before: Manifest | None, parted: int) -> Manifest:
    """A version of another chain, as it reads at this one, with the dates that its rows have here.

    It comes after ``before``. ``parted`` is the number, there, of the last version that both have.
    """
    if not manifest.flags & Flag.STABLE_ROW_IDS:
        return manifest
    newest = 0 if before is None else before.version
    known = {} if before is None else {_files(one): one for one in before.fragments}
    fragments = []
    for fragment in manifest.fragments:
        there = known.get(_files(fragment))
        for field in (_CHANGED, _MADE):
            said = fragment.all(field) if there is None else there.all(field)
            if there is None:
                said = [_sequence(one, parted, newest) for one in said]
            fragment = fragment.having(field, *said)
        fragments.append(fragment)
    return manifest.with_parts(fragments=fragments)


def _sequence(data: bytes, parted: int, newest: int) -> bytes:
    """What came there after the sides parted comes with the next version here, all else with one before."""
    runs = [Message.read(one) for one in Message.read(data).all(_RUNS)]
    numbers = [one.number(_VERSION) or 0 for one in runs]
    dates = [newest + 1 if number > parted else min(number, newest) for number in numbers]
    said = [run.having(_VERSION, date).pack() for run, date in zip(runs, dates, strict=True)]
    return Message.read(data).having(_RUNS, *said).pack()


def _files(fragment: Message) -> tuple[str | None, ...]:
    """The names of a fragment's files, which no others have, wherever they lie."""
    return tuple(Message.read(one).text(1) for one in fragment.all(FILES))
