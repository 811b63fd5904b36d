"""Leftovers: files below a table that no commit needs, told by their names, their age and the owner's word.

A listing alone never tells. A file is judged only if its name is one that writers of tables give; whatever
else lies there is somebody else's, and so is all that lies in a folder with a log of its own. Data files that
nobody names go after a long time, since a job may be under way that is yet to commit them. What lies beside
the log, and files that only readers make for themselves, go after a day.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator
from functools import lru_cache
from typing import Final

import msgspec

from penstock.formats.delta.branch_log.branch_log import FOLDER
from penstock.formats.delta.log.cleanup import is_superseded
from penstock.formats.delta.protocol.lint_files import BRANCH_DATA
from penstock.formats.delta.protocol.names import LOG
from penstock.formats.delta.publishing.side_files import is_scratch
from penstock.storage.buckets import BucketEntry
from penstock.storage.sweep_decisions import JudgedFile, SweepDecision

PREFIX_LENGTH: Final = 2
"""How many letters a random prefix has, unless a table says otherwise."""
READS: Final = f"{FOLDER}reads/"
"""What readers make for themselves."""

_UUID: Final = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_CHANGES: Final = "_change_data/"
_WRITTEN: Final = re.compile(
    rf"(?:{BRANCH_DATA})?(?:{_CHANGES})?(?:[^/=]+=[^/]*/)*"
    r"(?:(?:part|cdc)-[^/]+\.parquet|deletion_vector_[^/]+\.bin)"
)
_ATTEMPT: Final = re.compile(
    rf"(?:{BRANCH_DATA}|(?:{BRANCH_DATA})?{_CHANGES})job=[0-9a-f]{{32}}/_temporary/.+", re.DOTALL
)
"""What attempts leave in the folder of a job that Spark's own committer looks after."""
_SUM: Final = re.compile(r"(?P<folder>(?:.*/)?)\.(?P<name>[^/]+)\.crc", re.DOTALL)
"""The checksum that Hadoop keeps beside a file on a disk."""


class DeltaNeeds(msgspec.Struct, frozen=True, kw_only=True):
    """What is needed of a table, and from which time on files are too young to be judged."""

    named: Container[str]
    """Data files."""
    beside: Container[str]
    """Files beside the log."""
    published: int
    """Versions up to this one are in the log, so that what was staged for them is not needed."""
    data_us: int
    scratch_us: int
    prefix_length: int = PREFIX_LENGTH
    """How many letters the table's random prefixes have."""
    former: Container[str] = ()
    """Data files with other names than writers give, of versions that an erase has ended."""


def judge_files(entries: Iterable[BucketEntry], needs: DeltaNeeds) -> Iterator[JudgedFile]:
    """The fate of every file that is judged at all, from a listing of all that lies below the table's root,
    in the order of names.

    A checksum goes with the file that it belongs to, or when that is gone. It comes before that file in a
    listing, since a dot sorts before letters; so it waits until the file has been met, or until the end.
    """
    sums: dict[str, BucketEntry] = {}
    inner = _InnerTables()
    for entry in entries:
        yield from inner.advance_to(entry.key)
        if inner.is_in_last_table(entry.key):
            continue
        match = _SUM.fullmatch(entry.key)
        if match and _is_data(name := match["folder"] + match["name"], needs):
            sums[name] = entry
            continue
        fate = _decide_fate(entry, needs)
        if fate is None:
            continue
        yield from inner.hold_back(JudgedFile(entry, fate))
        own = sums.pop(entry.key, None)
        if own is not None and fate is SweepDecision.DATA and own.modified_us < needs.data_us:
            yield from inner.hold_back(JudgedFile(own, SweepDecision.DATA))
    yield from inner.pass_remaining()
    for name, entry in sums.items():
        if (
            entry.modified_us < needs.data_us
            and name not in needs.named
            and not inner.is_in_inner_table(name)
        ):
            yield JudgedFile(entry, SweepDecision.DATA)


def is_needed(file: JudgedFile, needs: DeltaNeeds) -> bool:
    """Whether a file that was to go is needed, by what is known now; a checksum is with its file."""
    match = _SUM.fullmatch(file.entry.key)
    name = file.entry.key if match is None else match["folder"] + match["name"]
    return name in needs.named or name in needs.beside


class _InnerTables:
    """Tables inside of the one that is listed, whose files are not judged: folders that hold a log.

    In a listing the log comes after files whose names begin with a capital letter, a digit or a dot. So what
    is to go waits until the listing has passed where a log would be, of every folder that it lies in.
    """

    def __init__(self) -> None:
        self._roots: list[str] = []
        self._waiting: list[JudgedFile] = []
        self._until = ""

    def advance_to(self, key: str) -> Iterator[JudgedFile]:
        """The listing has come to a key: yield the judged files that no inner table's log can keep any
        more."""
        if self._waiting and key >= self._until:
            yield from self.pass_remaining()
        root, separator, _ = key.partition(f"/{LOG}")
        if separator and not self.is_in_last_table(key):
            self._roots.append(f"{root}/")
            self._waiting = [
                judged_file
                for judged_file in self._waiting
                if not self.is_in_last_table(judged_file.entry.key)
            ]

    def hold_back(self, judged_file: JudgedFile) -> Iterator[JudgedFile]:
        """Yield a judged file, or hold it back if it would go and the log of an inner table may yet be
        listed."""
        until = _end_of_logs(judged_file.entry.key) if judged_file.fate.is_to_go else ""
        if until:
            self._until = max(self._until, until)
            self._waiting.append(judged_file)
        else:
            yield judged_file

    def pass_remaining(self) -> Iterator[JudgedFile]:
        waiting, self._waiting, self._until = self._waiting, [], ""
        yield from waiting

    def is_in_last_table(self, key: str) -> bool:
        """Whether a key lies in the table that was met last. Those before it have been passed."""
        return bool(self._roots) and key.startswith(self._roots[-1])

    def is_in_inner_table(self, key: str) -> bool:
        """Whether a key lies in an inner table that the listing has come across."""
        return any(key.startswith(root) for root in self._roots)


def _end_of_logs(key: str) -> str:
    """Where in a listing the last log would end of the folders that a key lies in; empty if before it."""
    steps = key.split("/")[:-1]
    ends = ("/".join(steps[: count + 1]) + f"/{LOG[:-1]}0" for count in range(len(steps)))
    return next((end for end in ends if key < end), "")  # those of outer folders come later


def _decide_fate(entry: BucketEntry, needs: DeltaNeeds) -> SweepDecision | None:
    name = entry.key
    if _is_data(name, needs):
        if name in needs.named or name in needs.beside:
            return SweepDecision.KEPT
        return SweepDecision.DATA if entry.modified_us < needs.data_us else SweepDecision.WAITING
    if entry.modified_us >= needs.scratch_us:
        return None
    if name.startswith(LOG):
        return SweepDecision.SCRATCH if is_superseded(name, needs.published) else None
    if name.startswith(READS) or (is_scratch(name) and name not in needs.beside):
        return SweepDecision.SCRATCH
    return None


def _is_data(name: str, needs: DeltaNeeds) -> bool:
    """Whether writers of tables call data files so, or keep such things where this one is."""
    return has_writer_name(name, needs.prefix_length) or name in needs.former


def has_writer_name(name: str, prefix_length: int = PREFIX_LENGTH) -> bool:
    """Whether a file has such a name as writers of Delta tables give."""
    return any(
        pattern.fullmatch(name) for pattern in (_WRITTEN, _make_prefix_pattern(prefix_length), _ATTEMPT)
    )


@lru_cache(maxsize=100)
def _make_prefix_pattern(length: int) -> re.Pattern[str]:
    """The pattern of names with a random prefix instead of partition folders.

    A folder of letters at the root may be anybody's: only the table's own length is taken there, and the
    usual one, which it may have had before; and only names that writers give in full. Where nobody but
    writers puts anything, a prefix may have any length.
    """
    own = "|".join(f"[A-Za-z0-9]{{{prefix_length}}}" for prefix_length in {PREFIX_LENGTH, length})
    return re.compile(
        rf"(?:{own}|{BRANCH_DATA}[A-Za-z0-9]+|(?:{BRANCH_DATA})?{_CHANGES}[A-Za-z0-9]+)/"
        rf"(?:(?:part|cdc)-[0-9]{{5,}}-{_UUID}[^/]*\.parquet|deletion_vector_{_UUID}\.bin)"
    )
