"""How far a stream has read a table, and what there is between two such places.

A stream begins with all rows of one version, in the order of the files' age, or with the changes of a version
that somebody names. Then it follows the versions, and reads the files that each of them adds.

Where it begins is decided when the first batch is planned, and stands in every offset from then on: Spark
asks for the first offset again if it is restarted before that batch is done, and the table may have moved on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias, TypeVar

import msgspec

from penstock.errors import InvalidRequest
from penstock.formats.delta.protocol.actions import Action, Add, Metadata, Remove
from penstock.formats.rows.schema import parse_schema
from penstock.model import decoders


class StreamOffset(msgspec.Struct, frozen=True, kw_only=True):
    """A place in a table's history: all before it has been read."""

    table: str = ""
    """The table's id: another one under the same key is not the stream's any more."""
    first: int = 0
    """The first version of which the changes are read."""
    has_snapshot: bool = False
    """Whether the rows of the version before are read first, as a whole."""
    version: int = -1
    """The version that is read next; -1 if it is not decided yet where to begin."""
    files: int = 0
    """How many of its files have been read."""
    tip: str = ""
    """Which version the last one is that was read from, as the lake knows it. The number alone does not tell:
    a branch may get other versions of the same numbers."""

    @property
    def last(self) -> int:
        """The last version that was read from, -1 if none was."""
        return self.version if self.files else self.version - 1

    @property
    def is_undecided(self) -> bool:
        return self.version < 0

    def start_of(self, end: StreamOffset) -> StreamOffset:
        """Where a batch starts that ends at another place: here, or where that stream began."""
        return end.move_to(end.first - end.has_snapshot) if self.is_undecided else self

    def move_to(self, version: int, files: int = 0) -> StreamOffset:
        return msgspec.structs.replace(self, version=version, files=files)

    def to_json(self) -> dict[str, Any]:
        """As Spark keeps it in the checkpoint."""
        return {name: getattr(self, name) for name in self.__struct_fields__}


def parse_offset(told: Any) -> StreamOffset:
    """The offset in a checkpoint. ``InvalidRequest`` for that of another source."""
    try:
        return decoders.convert_value(told, StreamOffset)
    except msgspec.ValidationError as problem:
        raise InvalidRequest(f"the checkpoint is not of a stream from a Penstock table: {problem}") from None


Files: TypeAlias = Sequence[Add]
"""What a stream reads of one version, always in the same order."""
File = TypeVar("File")
FilesOf: TypeAlias = Callable[[range], Iterator[tuple[int, Sequence[File]]]]
"""What a stream reads of each of some versions."""


class BatchLimit(msgspec.Struct, frozen=True, kw_only=True):
    """How much one batch may read. Nothing given is no limit."""

    files: int | None = None
    size: int | None = None

    @property
    def is_none(self) -> bool:
        return self.files is None and self.size is None

    def allows_files(self, files: int, size: int) -> bool:
        return (self.files is None or files <= self.files) and (self.size is None or size <= self.size)


def find_batch_end(
    start: StreamOffset, latest: int, files_of: FilesOf[Add], limit: BatchLimit
) -> StreamOffset:
    """The place up to which one batch reads: as far as the limit allows, and by one file at least."""
    if start.version > latest:
        return start
    if limit.is_none:
        return start.move_to(latest + 1)
    files_taken, size, skip = 0, 0, start.files
    for version, files in files_of(range(start.version, latest + 1)):
        for number, file in enumerate(files[skip:], skip):
            if files_taken and not limit.allows_files(files_taken + 1, size + file.size):
                return start.move_to(version, number)
            files_taken, size = files_taken + 1, size + file.size
        if files_taken and not limit.allows_files(
            files_taken + 1, size + 1
        ):  # whatever is wrong with the next one
            return start.move_to(version + 1)
        skip = 0
    return start.move_to(latest + 1)


def list_files_between(start: StreamOffset, end: StreamOffset, files_of: FilesOf[File]) -> Iterator[File]:
    """The files that are read from one place to another: the same ones whenever it is asked."""
    for version, files in files_of(range(start.version, end.last + 1)):
        first = start.files if version == start.version else 0
        yield from files[first : end.files if version == end.version else None]


def check_same_table(start: StreamOffset, table: str, latest: int, name: str, *, goes_on: bool) -> None:
    """``InvalidRequest`` if a stream cannot go on: its table was dropped, or set back to before its place, or
    does not go on from the version that was read last."""
    if start.is_undecided:
        return
    if start.table != table:
        raise InvalidRequest(
            f"'{name}' was dropped and created again since the stream last read it; use another checkpoint",
            key=name,
        )
    if start.version > latest + 1:
        raise InvalidRequest(
            f"the stream has read '{name}' up to version {start.version - 1}, but the newest is {latest}: "
            "its branch was reset; use another checkpoint",
            key=name,
        )
    if not goes_on:
        raise InvalidRequest(
            f"the stream has read '{name}' up to version {start.last}, but its branch has another history "
            "now: it was created again, moved to another commit, or merged into; start a stream with "
            "another checkpoint",
            key=name,
        )


def added_files(
    version: int, actions: Sequence[Action], columns: Sequence[str], name: str, *, skips_changes: bool
) -> Files:
    """What a stream reads of a version: the files that it adds, if it does nothing but add rows.

    A version that only rewrites files, or was made for other reasons, has nothing to read. ``InvalidRequest``
    for one that removes rows or replaces them, unless those are skipped, and for one with columns that the
    stream does not know.
    """
    for change in actions:
        if isinstance(change, Metadata):
            _refuse_new_columns(version, change, columns, name)
    if any(isinstance(action, Remove) and action.data_change for action in actions):
        if skips_changes:
            return ()
        raise InvalidRequest(
            f"version {version} of '{name}' removes or replaces rows, and a stream can only read added rows; "
            "the option 'skipChangeCommits' skips such versions",
            key=name,
            version=version,
        )
    return [action for action in actions if isinstance(action, Add) and action.data_change]


def _refuse_new_columns(version: int, metadata: Metadata, columns: Sequence[str], name: str) -> None:
    names_before = {column.lower() for column in columns}
    new = [
        field.name
        for field in parse_schema(metadata.schema_string).fields
        if field.name.lower() not in names_before
    ]
    if new:
        raise InvalidRequest(
            f"version {version} of '{name}' has new columns ({', '.join(new)}); restart the query with its "
            "checkpoint to read them from there on",
            key=name,
            version=version,
        )
