"""What can be asked of a table of files, in the form that a commit keeps for merges (rule K1)."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from penstock.errors import Damaged, InvalidRequest
from penstock.formats.files.files import File, FilesLayout, check_file, check_path, check_prefix
from penstock.model.encoding import encode, make_decoder

NAME: Final = "files"
"""Of the format."""


class WriteCondition(StrEnum):
    """In which case a write is done."""

    ALWAYS = "always"
    EMPTY = "empty"
    """Refused if the table has any file: Spark's ``error``."""
    IGNORE = "ignore"
    """Nothing happens if the table has any file."""


class WriteIntent(msgspec.Struct, frozen=True, array_like=True, kw_only=True, tag="write"):
    """A change to the files of a table, carried out on the table as it is at its turn.

    First whatever lies below ``replaced`` goes, then ``removed``; then ``added`` and ``put`` come. What is
    kept of it with the commit has no files: those are the difference of the two trees.
    """

    replaced: tuple[str, ...] = ()
    """Folders, each with a slash at its end; an empty one is the whole table."""
    removed: tuple[str, ...] = ()
    """Paths. Each must be there."""
    added: tuple[tuple[str, File], ...] = ()
    """None of these paths may be there, once the others are gone."""
    put: tuple[tuple[str, File], ...] = ()
    """These take the place of what is there."""
    when: WriteCondition = WriteCondition.ALWAYS
    expected: tuple[tuple[str, str | None], ...] = ()
    """Of paths: the address of the file there, ``None`` for no file. Else it is refused."""
    layout: FilesLayout | None = None
    """How the files are to be read from now on."""
    creates: bool = False
    """Create the table if there is none."""

    @property
    def path_count(self) -> int:
        """How many paths it names."""
        return len(self.added) + len(self.put) + len(self.removed)


class HistoryMark(msgspec.Struct, frozen=True, array_like=True, kw_only=True, tag="mark"):
    """Let the history of a table begin anew, as an erase does. Its files stay as they are."""

    number: int


_decode = make_decoder(WriteIntent).decode
_decode_asked = make_decoder(WriteIntent | HistoryMark).decode


def encode_mark(mark: HistoryMark) -> bytes:
    return encode(mark)


def decode_intent(data: bytes) -> WriteIntent | HistoryMark:
    """What is asked of a table; ``Damaged`` if nothing is. A commit keeps writes only."""
    try:
        write_intent: WriteIntent | HistoryMark = _decode_asked(data)
    except msgspec.MsgspecError as problem:
        raise Damaged(f"an intent of a table of files cannot be read: {problem}") from None
    return write_intent


def encode_write(write: WriteIntent) -> bytes:
    return encode(write)


def decode_write(data: bytes) -> WriteIntent:
    """The intent in some bytes; ``Damaged`` if there is none."""
    try:
        write_intent: WriteIntent = _decode(data)
    except msgspec.MsgspecError as problem:
        raise Damaged(f"an intent of a table of files cannot be read: {problem}") from None
    return write_intent


def select_part_for_merges(write: WriteIntent) -> WriteIntent:
    """The part of a write that later merges need: replaced folders and the write's condition."""
    return WriteIntent(replaced=write.replaced, when=write.when)


def check_write_intent(write: WriteIntent) -> WriteIntent:
    """Return ``write`` if it can be carried out on some table; ``InvalidRequest`` if on none."""
    seen: set[str] = set()
    for path, file in (*write.added, *write.put):
        check_file(path, file)
        if path in seen:
            raise InvalidRequest(f"'{path}' is written twice by one request")
        seen.add(path)
    for path in write.removed:
        check_path(path)
        if path in seen:
            raise InvalidRequest(f"'{path}' is both written and removed by one request")
        seen.add(path)
    for prefix in write.replaced:
        check_prefix(prefix)
    for path, _ in write.expected:
        check_path(path)
    return write
