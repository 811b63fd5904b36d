"""Files of a table: what is known of each, where it lies, and what the table's content says of all of them.

A table of files is a tree from path to file. The paths are the table's own: no folder anywhere has these
files under these names. They lie in the lake's pool, ``<warehouse>/_penstock/data/``, below
``<slice>/<fence>/``: the day that they were written on with the lake that they were written for, and the
attempt that wrote them. So a reader of plain folders sees nothing, rather than files that were never
committed, or are not any more.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final
from uuid import UUID, uuid4

import msgspec

from penstock.errors import Damaged, InvalidRequest
from penstock.formats.files.content import FilesTable
from penstock.model.content import AnyContent
from penstock.model.encoding import ObjectId, encode, hash_parts, make_decoder
from penstock.model.keys import Key
from penstock.model.objects import EMPTY_ROOT

USAGE: Final = "a table of files, which has no rows of its own: its files are in .files"
"""What is said of a table to who takes it for one of another format."""
PATH_MAX_BYTES: Final = 1024
ADDRESS_MAX_BYTES: Final = 1400
CHECKSUM_MAX_CHARS: Final = 200
MARKER: Final = "_SUCCESS"
"""The marker file of finished jobs. If two jobs wrote one, the later counts."""

_BOUND: Final = "8f0e"
"""Follows the 16th digit of a fence that was made for a table, whose 13th is an 8; 12 digits are a mark."""
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_ADDRESS: Final = re.compile(r"\d{8}-[0-9a-f]{12}/[0-9a-f]{32}/(?:.*[^/])?/?", re.DOTALL)


_NAMED: Final = frozenset(("", ".", ".."))
"""No part of a path or an address is one of these."""


class File(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="file"):
    """A file of a table.

    It is stored in the leaves of the table's tree. There it reads like a content of a type that the kernel
    does not know, as whatever walks over nodes expects.
    """

    address: str
    """Below the pool. One that ends with a slash is a folder, in which the file lies at its own path."""
    size: int
    time_us: int
    """When it was written."""
    checksum: str = ""
    """``sha256:…`` of its bytes, or ``etag:…`` as the storage calls them; empty if neither is known."""

    def address_at(self, path: str) -> str:
        """Its whole address below the pool, as the file at a path."""
        return self.address + path if self.address.endswith("/") else self.address

    def is_same_as(self, other: File) -> bool:
        """Whether both have the same bytes, as far as can be told without a look at them."""
        if self == other:
            return True
        return bool(self.checksum) and (self.checksum, self.size) == (other.checksum, other.size)


def is_same(file: File | None, other: File | None) -> bool:
    """Whether both are the same file, or there is neither."""
    return file is other or (file is not None and other is not None and file.is_same_as(other))


class FilesLayout(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """How the files of a table are to be read, as its last job said. Nothing of it is checked."""

    format: str = ""
    """As Spark names it, such as ``parquet``."""
    partition_by: tuple[str, ...] = ()
    schema: str = ""
    """Spark's, as JSON, with the partition columns; empty if it is not known."""
    options: dict[str, str] = {}
    """That a reader needs, such as ``header``."""


class FilesState(msgspec.Struct, frozen=True, array_like=True):
    """What the content of a table of files says."""

    root: ObjectId = EMPTY_ROOT
    """Of the tree: from path, in UTF-8, to ``File``."""
    files: int = 0
    size: int = 0
    """Of all files together, in bytes."""
    layout: FilesLayout = FilesLayout()
    mark: int = 0
    """How often the table was erased. Every state from then on has it, so that no earlier one is equal."""


_decode_file = make_decoder(File).decode
_decode_state = make_decoder(FilesState).decode


def encode_file(file: File) -> bytes:
    return encode(file)


def decode_file(data: object) -> File:
    """The file in a value of a tree; ``Damaged`` if there is none."""
    try:
        file: File = _decode_file(data)  # type: ignore[arg-type]
    except (msgspec.MsgspecError, TypeError) as problem:
        raise Damaged(f"an entry in the list of a table's files is damaged: {problem}") from None
    return file


def is_managed(content: AnyContent | None) -> bool:
    """Whether a content is a table of files that the lake keeps, and not only a pointer to some."""
    return isinstance(content, FilesTable) and content.state != b""


def decode_state(content: FilesTable) -> FilesState:
    """What a content says; ``Damaged`` if it cannot be read."""
    try:
        state: FilesState = _decode_state(content.state)
    except msgspec.MsgspecError as problem:
        raise Damaged(f"the state of a table of files cannot be read: {problem}") from None
    return state


def encode_state_into_table(content: FilesTable, state: FilesState) -> FilesTable:
    held = () if state.root == EMPTY_ROOT else (state.root,)
    return msgspec.structs.replace(content, state=_encode_state(state), held=held)


def _encode_state(state: FilesState) -> bytes:
    """A table that was never erased has the bytes that it always had."""
    return encode(state) if state.mark else encode(msgspec.structs.astuple(state)[:-1])


# -- names -------------------------------------------------------------------------------------------------


def check_path(path: str) -> str:
    """A path that a file can have; ``InvalidRequest`` if it cannot."""
    if not path or not _NAMED.isdisjoint(path.split("/")):
        raise InvalidRequest(
            f"{path!r} is not a valid path of a file: its parts must not be empty, '.' or '..'"
        )
    return _check_text(path, "path", PATH_MAX_BYTES)


def check_prefix(prefix: str) -> str:
    """A folder, with a slash at its end, or nothing for the whole table; ``InvalidRequest`` otherwise."""
    if prefix:
        if not prefix.endswith("/"):
            raise InvalidRequest(f"{prefix!r} is not a folder: a folder ends with a slash, as in '{prefix}/'")
        check_path(prefix[:-1])
    return prefix


def check_file(path: str, file: File) -> None:
    """``InvalidRequest`` for a file that no writer of this lake can have written."""
    check_path(path)
    whole = file.address_at(path)
    if not _ADDRESS.fullmatch(file.address) or not _NAMED.isdisjoint(whole.split("/")):
        raise InvalidRequest(f"the address of '{path}' is not in the lake's file storage: {file.address!r}")
    _check_text(whole, "address", ADDRESS_MAX_BYTES)
    if file.size < 0 or file.time_us < 0 or len(file.checksum) > CHECKSUM_MAX_CHARS:
        raise InvalidRequest(f"invalid size or checksum of '{path}': {file}")
    _check_text(file.checksum, "checksum", ADDRESS_MAX_BYTES)


def _check_text(text: str, subject: str, most: int) -> str:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise InvalidRequest(f"{text!r} is not a valid {subject}: it is not UTF-8") from None
    if size > most:
        raise InvalidRequest(f"a {subject} can have at most {most} bytes, but {text[:60]!r}… has {size}")
    if _CONTROL.search(text):
        raise InvalidRequest(f"{text!r} is not a valid {subject}: it has control characters")
    return text


def make_folder_name(lake_id: str, fence: UUID, now_us: int) -> str:
    """The folder of an attempt below the pool. All that it writes lies there, and nothing else does."""
    return f"{find_slice(lake_id, format_day(now_us))}/{fence.hex}/"


def make_fence(branch: str, key: Key) -> UUID:
    """A fence for an attempt to write a table on a branch."""
    return make_repeatable_fence(branch, key, uuid4())


def make_repeatable_fence(branch: str, key: Key, at_random: UUID) -> UUID:
    """The fence that a random id makes for a table on a branch, always the same: 60 of its bits, and a mark.

    Whoever knows the folder of an attempt, as readers of its table do, cannot commit what is there elsewhere.
    """
    digits = at_random.hex
    beginning = f"{digits[:12]}8{digits[13:16]}{_BOUND}"
    return UUID(hex=beginning + _hash_branch_and_key(branch, key, beginning))


def is_made_for_another(fence: str, branch: str, key: Key) -> bool:
    """Whether a fence was made for another table or branch. A fence that is all random does not record it."""
    beginning, mark = fence[:20], fence[20:]
    return (
        fence[12] == "8"
        and beginning.endswith(_BOUND)
        and mark != _hash_branch_and_key(branch, key, beginning)
    )


def _hash_branch_and_key(branch: str, key: Key, beginning: str) -> str:
    return hash_parts("fence", beginning, branch, str(key)).hex()[:12]


def format_day(time_us: int) -> str:
    """The day of a time, as ``20261115``."""
    return datetime.fromtimestamp(time_us / 1e6, UTC).strftime("%Y%m%d")


def find_slice(lake_id: str, day: str) -> str:
    """The folder below the pool for what a lake's jobs began to write on a day.

    Forks and copies may share a warehouse; each sweeps what was written for itself.
    """
    return f"{day}-{UUID(lake_id).hex[:12]}"
