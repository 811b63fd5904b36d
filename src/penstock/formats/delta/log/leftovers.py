"""Leftovers: files below a table that no commit needs, told by their names, their age and the owner's word.

A listing alone never tells. A file is judged only if its name is one that writers of tables give; whatever
else lies there is somebody else's. Data files that nobody names go after a long time, since a job may be
under way that is yet to commit them. What lies beside the log, and files that only readers make for
themselves, go after a day.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator
from enum import Enum, auto
from typing import Final, NamedTuple

import msgspec

from penstock.formats.delta.lines.line import FOLDER
from penstock.formats.delta.log.cleanup import is_superseded
from penstock.formats.delta.log.scratch import is_scratch
from penstock.formats.delta.protocol.names import LOG
from penstock.formats.delta.protocol.paths import BRANCH_DATA
from penstock.storage.buckets import Entry

JOBS: Final = f"{FOLDER}jobs/"
"""What jobs keep while they run."""
READS: Final = f"{FOLDER}reads/"
"""What readers make for themselves."""

_UUID: Final = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_CHANGES: Final = "_change_data/"
_WRITTEN: Final = re.compile(
    rf"(?:{BRANCH_DATA})?(?:{_CHANGES})?(?:[^/=]+=[^/]*/)*"
    r"(?:(?:part|cdc)-[^/]+\.parquet|deletion_vector_[^/]+\.bin)"
)
# A folder of letters at the root may be anybody's: only the usual length is taken there, and only names that
# writers give in full. Where nobody but writers puts anything, a prefix may have any length.
_PREFIXED: Final = re.compile(
    rf"(?:[A-Za-z0-9]{{2}}|{BRANCH_DATA}[A-Za-z0-9]+|(?:{BRANCH_DATA})?{_CHANGES}[A-Za-z0-9]+)/"
    rf"(?:(?:part|cdc)-[0-9]{{5,}}-{_UUID}[^/]*\.parquet|deletion_vector_{_UUID}\.bin)"
)
"""A random prefix stands in for the folders of a partition."""
_ATTEMPT: Final = re.compile(
    rf"(?:{BRANCH_DATA}|(?:{BRANCH_DATA})?{_CHANGES})job=[0-9a-f]{{32}}/_temporary/.+", re.DOTALL
)
"""What attempts leave in the folder of a job that Spark's own committer looks after."""
_SUM: Final = re.compile(r"(?P<folder>(?:.*/)?)\.(?P<name>[^/]+)\.crc", re.DOTALL)
"""The checksum that Hadoop keeps beside a file on a disk."""


class Fate(Enum):
    """What becomes of a file."""

    KEPT = auto()
    """A data file that is needed."""
    WAITING = auto()
    """A data file that nobody names yet, too young to be judged."""
    DATA = auto()
    """A data file that may go."""
    SCRATCH = auto()
    """Any other file that may go."""


class Judged(NamedTuple):
    """A file whose fate is known."""

    entry: Entry
    fate: Fate


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    """What is needed of a table, and from which time on files are too young to be judged."""

    named: Container[str]
    """Data files."""
    beside: Container[str]
    """Files beside the log."""
    published: int
    """Versions up to this one are in the log, so that what was staged for them is not needed."""
    data_us: int
    scratch_us: int


def judge(entries: Iterable[Entry], needs: Needs) -> Iterator[Judged]:
    """The fate of every file that is judged at all, from a listing of all that lies below the table's root,
    in the order of names.

    A checksum goes with the file that it belongs to, or when that is gone. It comes before that file in a
    listing, since a dot sorts before letters; so it waits until the file has been met, or until the end.
    """
    sums: dict[str, Entry] = {}
    for entry in entries:
        if (found := _SUM.fullmatch(entry.key)) and _is_data(name := found["folder"] + found["name"]):
            sums[name] = entry
            continue
        fate = _fate(entry, needs)
        if fate is None:
            continue
        yield Judged(entry, fate)
        own = sums.pop(entry.key, None)
        if own is not None and fate is Fate.DATA and own.modified_us < needs.data_us:
            yield Judged(own, Fate.DATA)
    for name, entry in sums.items():
        if entry.modified_us < needs.data_us and name not in needs.named:
            yield Judged(entry, Fate.DATA)


def still(judged: Iterable[Judged], needs: Needs) -> Iterator[Judged]:
    """Those of some files that are to go which still may, by what is needed now."""
    for one in judged:
        found = _SUM.fullmatch(one.entry.key)
        name = one.entry.key if found is None else found["folder"] + found["name"]
        if name not in needs.named and name not in needs.beside:
            yield one


def _fate(entry: Entry, needs: Needs) -> Fate | None:
    name = entry.key
    if _is_data(name):
        if name in needs.named or name in needs.beside:
            return Fate.KEPT
        return Fate.DATA if entry.modified_us < needs.data_us else Fate.WAITING
    if entry.modified_us >= needs.scratch_us:
        return None
    if name.startswith(LOG):
        return Fate.SCRATCH if is_superseded(name, needs.published) else None
    if name.startswith(READS) or (is_scratch(name) and name not in needs.beside):
        return Fate.SCRATCH
    return None


def _is_data(name: str) -> bool:
    """Whether writers of tables call data files so, or keep such things where this one is."""
    return name.startswith(JOBS) or any(one.fullmatch(name) for one in (_WRITTEN, _PREFIXED, _ATTEMPT))
