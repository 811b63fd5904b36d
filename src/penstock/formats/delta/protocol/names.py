"""The names of the files in a Delta log, relative to the table's root.

A name that is none of these says nothing, and is ignored: other programs keep files of their own there.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple, TypeAlias
from urllib.parse import unquote
from uuid import UUID

LOG: Final = "_delta_log/"
LAST_CHECKPOINT: Final = LOG + "_last_checkpoint"
SIDECARS: Final = LOG + "_sidecars/"
STAGED_FOLDERS: Final = ("_commits", "_staged_commits")
"""The folder of commits that are not published yet, by the names that the protocol has had for it."""
VERSION_MAX: Final = 2**63 - 1
UUID_PATTERN: Final = "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
"""A regular expression. Names of data files with such an id are given once."""
START_OF_VERSIONS: Final = LOG + "0"
"""Sorts before every name that begins with a version, and behind hidden files."""
END_OF_VERSIONS: Final = LOG + ":"
"""Sorts behind every name that begins with a version, and before all folders."""


class CommitName(NamedTuple):
    """The published commit of a version."""

    version: int

    def __str__(self) -> str:
        return f"{LOG}{self.version:020}.json"


class StagedName(NamedTuple):
    """A commit that proposes to be a version. Many may; which one is, its name does not tell."""

    version: int
    uuid: UUID
    folder: str = STAGED_FOLDERS[0]

    def __str__(self) -> str:
        return f"{LOG}{self.folder}/{self.version:020}.{self.uuid}.json"


class CompactionName(NamedTuple):
    """The net actions of several commits in a row."""

    first: int
    last: int

    def __str__(self) -> str:
        return f"{LOG}{self.first:020}.{self.last:020}.compacted.json"


class ChecksumName(NamedTuple):
    """Totals of the table at a version."""

    version: int

    def __str__(self) -> str:
        return f"{LOG}{self.version:020}.crc"


class ClassicName(NamedTuple):
    """A checkpoint in one file. Inside, it may be of the second version all the same."""

    version: int

    def __str__(self) -> str:
        return f"{LOG}{self.version:020}.checkpoint.parquet"


class PartName(NamedTuple):
    """One of several files that are a checkpoint together; parts count from 1."""

    version: int
    part: int
    parts: int

    def __str__(self) -> str:
        return f"{LOG}{self.version:020}.checkpoint.{self.part:010}.{self.parts:010}.parquet"


class UuidName(NamedTuple):
    """A checkpoint of the second version, which may name sidecars."""

    version: int
    uuid: UUID
    extension: str
    """``parquet`` or ``json``."""

    def __str__(self) -> str:
        return f"{LOG}{self.version:020}.checkpoint.{self.uuid}.{self.extension}"


CheckpointName: TypeAlias = ClassicName | PartName | UuidName
LogName: TypeAlias = CommitName | StagedName | CompactionName | ChecksumName | CheckpointName


def parse_name(name: str) -> LogName | None:
    """What a name stands for; ``None`` if it means nothing in a log."""
    match = _NAME.fullmatch(name)
    if match is None or int(match["version"]) > VERSION_MAX:
        return None
    version = int(match["version"])
    if match["staged"]:
        return StagedName(version, UUID(match["staged"]), match["folder"]) if match["folder"] else None
    if match["folder"]:
        return None
    if match["last"]:
        last = int(match["last"])
        return CompactionName(version, last) if version < last <= VERSION_MAX else None
    if match["part"]:
        part, parts = int(match["part"]), int(match["parts"])
        return PartName(version, part, parts) if 1 <= part <= parts else None
    if match["uuid"]:
        return UuidName(version, UUID(match["uuid"]), match["extension"])
    if match["classic"]:
        return ClassicName(version)
    return ChecksumName(version) if match["checksum"] else CommitName(version)


def make_text_before_version(version: int) -> str:
    """A text that sorts before all names of a version, and behind those of the versions before it."""
    return f"{LOG}{version:020}"


def sidecar_name(path: str) -> str:
    """Where the sidecar lies that a checkpoint names: in one folder, however much of its address is given."""
    return SIDECARS + unquote(path.rpartition("/")[2])


_NAME: Final = re.compile(
    rf"{LOG}(?:(?P<folder>{'|'.join(STAGED_FOLDERS)})/)?"
    rf"(?P<version>[0-9]{{20}})\.(?:"
    rf"json|(?P<checksum>crc)|(?P<staged>{UUID_PATTERN})\.json|(?P<last>[0-9]{{20}})\.compacted\.json|checkpoint\.(?:"
    rf"(?P<classic>parquet)|(?P<part>[0-9]{{10}})\.(?P<parts>[0-9]{{10}})\.parquet|"
    rf"(?P<uuid>{UUID_PATTERN})\.(?P<extension>json|parquet)))"
)
