"""Row tracking: every row of a table has an id, and the version at which it was last written.

A file gives its rows ids in their order, from ``baseRowId`` on, and the version of the commit that added it.
A file that holds rows of other files says in two further columns which ids and versions these have had: they
are *materialized*. The domain ``delta.rowTracking`` says how far ids were given: none is given twice.

The owner of a table gives the ids, when a commit becomes a version: only then it is known which come next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple
from uuid import uuid4

import msgspec

from penstock.errors import InvalidRequest
from penstock.formats.delta.protocol.actions import (
    ACTION_NAMES,
    Action,
    Add,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    Remove,
)
from penstock.formats.delta.protocol.feature_table import ROW_TRACKING
from penstock.formats.delta.protocol.features import supported_features
from penstock.formats.delta.protocol.properties import ROW_TRACKING_ENABLED, is_on
from penstock.formats.rows.schema import parse_schema
from penstock.model.decoders import get_json_decoder

DOMAIN: Final = "delta.rowTracking"
ENABLED: Final = ROW_TRACKING_ENABLED
SUSPENDED: Final = "delta.rowTrackingSuspended"
ID_COLUMN: Final = "delta.rowTracking.materializedRowIdColumnName"
VERSION_COLUMN: Final = "delta.rowTracking.materializedRowCommitVersionColumnName"
PRESERVED: Final = "delta.rowTracking.preserved"
"""In the tags of a ``commitInfo``: whether rows that were copied or updated have kept their ids."""
PROVISIONAL: Final = 1 << 62
"""The first id that a branch gives to a row that has not landed."""
NO_ROW_ID: Final = -1
"""The highest id of a table that has given none."""


ROW_ID: Final = "_row_id"
"""The id of a row, for readers that name this column."""
ROW_COMMIT_VERSION: Final = "_row_commit_version"
"""The version at which a row was last written, likewise."""


class RowTrackingColumns(NamedTuple):
    """The columns of data files that hold materialized ids and versions."""

    row_id: str
    row_commit_version: str


class FileRowIds(NamedTuple):
    """The id of the first row of a file, and the version of the commit that added the file."""

    base: int
    version: int

    @property
    def is_provisional(self) -> bool:
        """Whether a branch gave them, and the file has not landed."""
        return self.base >= PROVISIONAL


def assigns_row_ids(protocol: Protocol, metadata: Metadata) -> bool:
    """Whether every file that is added to such a table gets ids for its rows."""
    return ROW_TRACKING in supported_features(protocol) and not is_on(metadata.configuration, SUSPENDED)


def has_row_tracking(metadata: Metadata) -> bool:
    """Whether every row of such a table has an id."""
    return is_on(metadata.configuration, ENABLED)


def get_row_tracking_columns(metadata: Metadata) -> RowTrackingColumns | None:
    """Where files of the table keep ids of rows that were in other files; ``None`` if rows are not tracked.

    Also ``None`` for a table that lacks the names: then nothing can be materialized.
    """
    names = metadata.configuration.get(ID_COLUMN), metadata.configuration.get(VERSION_COLUMN)
    if not has_row_tracking(metadata) or names[0] is None or names[1] is None:
        return None
    return RowTrackingColumns(names[0], names[1])


def row_id_names(metadata: Metadata, columns: Iterable[str]) -> list[str]:
    """Of the columns that a reader names, those that tell what the table keeps of its rows.

    A column of the table that is called so is that column. ``InvalidRequest`` if the table keeps nothing.
    """
    named = [name for name in columns if name in (ROW_ID, ROW_COMMIT_VERSION)]
    own = {field.name for field in parse_schema(metadata.schema_string).fields} if named else set()
    hidden = [name for name in named if name not in own]
    if hidden and not has_row_tracking(metadata):
        raise InvalidRequest(
            f"the table has no column '{hidden[0]}', and does not track rows: its property {ENABLED} is not"
            " 'true'",
            column=hidden[0],
        )
    return hidden


def name_row_columns(configuration: Mapping[str, str]) -> dict[str, str]:
    """The properties of a table with names for the columns, if it tracks rows and has none yet."""
    if not is_on(configuration, ENABLED):
        return dict(configuration)
    names = {ID_COLUMN: f"_row-id-col-{uuid4()}", VERSION_COLUMN: f"_row-commit-version-col-{uuid4()}"}
    return {**names, **configuration}


def highest_row_id(domains: Mapping[str, DomainMetadata]) -> int:
    """The highest id that was given, by a table's domains; ``NO_ROW_ID`` if they do not say."""
    mark = domains.get(DOMAIN)
    if mark is None or mark.removed:
        return NO_ROW_ID
    try:
        return _MARK.decode(mark.configuration).row_id_high_water_mark
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return NO_ROW_ID


def high_water_mark(highest: int) -> DomainMetadata:
    """The action that says how far ids were given."""
    return DomainMetadata(domain=DOMAIN, configuration=f'{{"rowIdHighWaterMark":{highest}}}')


def is_high_water_mark(action: Action | None) -> bool:
    return isinstance(action, DomainMetadata) and action.domain == DOMAIN


def get_row_ids(file: Add | Remove) -> FileRowIds | None:
    """What the log says of a file; ``None`` if it has no ids."""
    if file.base_row_id is None or file.default_row_commit_version is None:
        return None
    return FileRowIds(file.base_row_id, file.default_row_commit_version)


def without_row_ids(add: Add) -> Add:
    """A file that gets ids anew."""
    return msgspec.structs.replace(add, base_row_id=None, default_row_commit_version=None)


def collect_row_ids(actions: Iterable[Action]) -> dict[str, FileRowIds]:
    """The ids of files, by their decoded paths, as far as the log says any."""
    files = (action for action in actions if isinstance(action, Add | Remove))
    return {file.key.path: ids for file in files if (ids := get_row_ids(file)) is not None}


def count_rows(add: Add) -> int | None:
    """How many rows a file has, deleted ones among them; ``None`` if its statistics do not say."""
    try:
        return None if add.stats is None else _STATS.decode(add.stats).num_records
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


class RowIdCounter:
    """Gives ids to the files of one version."""

    def __init__(self, version: int, highest: int) -> None:
        self._version, self.highest = version, highest
        self._before = highest

    def assign_row_ids(self, add: Add) -> FileRowIds:
        """The ids of a file that was never in the table."""
        ids = FileRowIds(self.highest + 1, self._version)
        self.highest += count_rows(add) or 0
        return ids

    @property
    def marks(self) -> list[DomainMetadata]:
        """What the version says of the ids that were given: nothing, if none were. The first one also says
        how far they were given in files that come from elsewhere."""
        before = NO_ROW_ID if self._version == 0 else self._before
        return [] if self.highest == before else [high_water_mark(self.highest)]


def number_files(actions: Iterable[Action], counter: RowIdCounter) -> list[Action]:
    """Actions of a commit in which every file that is added has ids: those that it has, else new ones."""
    numbered: list[Action] = []
    for action in actions:
        if isinstance(action, Add) and get_row_ids(action) is None:
            ids = counter.assign_row_ids(action)
            action = msgspec.structs.replace(
                action, base_row_id=ids.base, default_row_commit_version=ids.version
            )
        numbered.append(action)
    return numbered


def write_row_ids(raw: bytes, file: Add | Remove, ids: FileRowIds) -> bytes:
    """The line of an action with other ids, and with everything else that its writer gave."""
    line: dict[str, dict[str, Any]] = msgspec.json.decode(raw)
    line[ACTION_NAMES[type(file)]] |= {"baseRowId": ids.base, "defaultRowCommitVersion": ids.version}
    return msgspec.json.encode(line)


def mark_row_ids_preserved(info: CommitInfo) -> CommitInfo:
    """A ``commitInfo`` that says that rows have kept their ids."""
    tags = info.fields.get("tags")
    others = tags if isinstance(tags, dict) else {}
    return CommitInfo({**info.fields, "tags": {**others, PRESERVED: "true"}})


class _Mark(msgspec.Struct, rename="camel"):
    row_id_high_water_mark: int


class _Stats(msgspec.Struct, rename="camel"):
    num_records: int | None = None


_MARK: Final = get_json_decoder(_Mark)
_STATS: Final = get_json_decoder(_Stats)
