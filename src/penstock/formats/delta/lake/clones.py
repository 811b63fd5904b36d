"""Shallow clones: a new table that has the files of another one, where they are. None of them is copied.

The clone's log names these files by their whole addresses, and the lake notes whose they are. Sweeps, erases
and backups of the other table look at that (``lake.clone_needs``). So its rows stay readable, whatever
becomes of the table that it was cloned from.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from penstock.errors import TableStateRefused
from penstock.formats.delta.branch_log.branch_log import decode_branch_log
from penstock.formats.delta.branch_log.ownership import PROTECTED, NewTable
from penstock.formats.delta.format import check_phase
from penstock.formats.delta.lake.missing_files import MissingDeltaFiles
from penstock.formats.delta.log.snapshot import LogSnapshot
from penstock.formats.delta.protocol.actions import Action, Add, CommitInfo, DeletionVector, write_commit
from penstock.formats.delta.protocol.clones import clone_sources, make_absolute_address
from penstock.formats.delta.protocol.clustering import DOMAIN
from penstock.formats.delta.protocol.feature_table import IN_COMMIT_TIMESTAMP, MANAGED_COMMITS
from penstock.formats.delta.protocol.features import supported_features
from penstock.formats.delta.protocol.property_changes import FEATURE_PROPERTY
from penstock.formats.delta.protocol.row_ids import (
    NO_ROW_ID,
    PROVISIONAL,
    VERSION_COLUMN,
    count_rows,
    get_row_ids,
    highest_row_id,
    without_row_ids,
)
from penstock.formats.delta.rows.file_addresses import name_inside, open_table_place
from penstock.formats.delta.rows.vectors import get_vector_file_name
from penstock.formats.plugin import list_missing
from penstock.kernel.format import FormatRefused
from penstock.kernel.table_horizons import read_all_horizons
from penstock.model.keys import Key
from penstock.model.nessie import DeltaTable
from penstock.storage.linked_places import LinkedPlace
from penstock.storage.locations import normalise_location
from penstock.storage.places import Place

if TYPE_CHECKING:
    from penstock.formats.delta.lake.calls import CloneTable
    from penstock.formats.delta.lake.services import DeltaServices
    from penstock.formats.delta.ownership.handover import HandoverResult
    from penstock.model.encoding import ObjectId


def require_cloneable(parts: DeltaServices, key: Key, content: DeltaTable) -> None:
    """``ManagedElsewhere`` for a table of another lake, whose sweeps would not know of the clone;
    ``TableStateRefused`` for one that is on its way in or out."""
    parts.publisher.check_owned(content)
    try:
        check_phase(decode_branch_log(content))
    except FormatRefused as refused:
        raise TableStateRefused(f"'{key}' {refused}", key=str(key)) from None


def require_readable(parts: DeltaServices, made: HandoverResult, head: ObjectId) -> None:
    """``TableStateRefused`` if files of a clone that was made before are gone, or an erase may be about to
    remove them.

    Whoever made it may have died before the last look at its source, so that nobody has dropped it.
    """
    tables = parts.owner.tables
    content = tables.find_content(head, made.key)
    if not isinstance(content, DeltaTable) or not content.state or content.id != made.id:
        return
    snapshot = parts.commits.read_snapshot(content, tables.read_object)
    sources = {*map(normalise_location, clone_sources(snapshot.metadata.configuration))}
    for horizon in read_all_horizons(tables.kernel.store) if sources else ():
        source = tables.find_last(horizon.table) if horizon.ended_us is None else None
        if source is not None and normalise_location(source.location) in sources:
            raise TableStateRefused(
                f"'{made.key}' was cloned from '{horizon.key}', which is being erased: try again when the "
                f"erase has ended; if it does not end, erase '{horizon.key}' again",
                key=str(made.key),
            )
    if gone := MissingDeltaFiles(parts).find_gone(content, snapshot):
        raise TableStateRefused(
            f"'{made.key}' was cloned, but files that it needs were removed during that: "
            f"{list_missing(gone)}\n  Drop '{made.key}', and clone the table again with another "
            "idempotency key.",
            key=str(made.key),
        )


def plan_clone(parts: DeltaServices, call: CloneTable, content: DeltaTable) -> NewTable:
    """What a clone of a table is to be. Nothing is read but the table's log."""
    snapshot = parts.commits.read_snapshot(content, parts.owner.tables.read_object, call.version)
    files = _ClonedFiles(open_table_place(parts.places, content.location, snapshot.metadata.configuration))
    actions = [*files.list_files(snapshot), *_copy_clustering(snapshot)]
    features = supported_features(snapshot.protocol) - {MANAGED_COMMITS, IN_COMMIT_TIMESTAMP}
    metadata = snapshot.metadata
    # By another name, what files say of the source's versions is nothing that the clone's readers see.
    not_cloned = {*PROTECTED, VERSION_COLUMN}
    properties = {name: text for name, text in metadata.configuration.items() if name not in not_cloned}
    info = CommitInfo(
        {
            "operation": "CLONE",
            "operationParameters": {
                "source": content.location,
                "sourceVersion": str(snapshot.version),
                "isShallow": "true",
            },
        }
    )
    return NewTable(
        schema_string=metadata.schema_string,
        partition_columns=metadata.partition_columns,
        properties=properties | {f"{FEATURE_PROPERTY}{name}": "supported" for name in features},
        name=str(call.key),
        description=metadata.description,
        actions=write_commit([info, *actions]),
        sources=tuple(sorted(files.sources)),
        highest_row_id=_find_highest_row_id(parts, content, snapshot),
    )


def _find_highest_row_id(parts: DeltaServices, content: DeltaTable, snapshot: LogSnapshot) -> int:
    """How far ids were given that files of a table may have written down, or have from the default branch."""
    highest = highest_row_id(snapshot.domains)
    if highest < PROVISIONAL:
        return highest
    tables = parts.owner.tables
    last = None if content.id is None else tables.find_last(content.id)
    landed = (
        parts.commits.read_snapshot(content, tables.read_object, 0)  # it never was on the default branch
        if last is None
        else parts.commits.read_snapshot(last, tables.read_object)
    )
    files = ((get_row_ids(file), count_rows(file) or 0) for file in snapshot.read_files())
    ends = (ids.base + count - 1 for ids, count in files if ids is not None and not ids.is_provisional)
    return max(highest_row_id(landed.domains), *ends, NO_ROW_ID)


def _copy_clustering(snapshot: LogSnapshot) -> Iterator[Action]:
    domain = snapshot.domains.get(DOMAIN)
    if domain is not None and not domain.removed:
        yield domain


def _with_final_row_ids(file: Add) -> Add:
    """A file with the ids that it has in a clone, and the clone's first version.

    What a branch gave is not known elsewhere: the clone gives final ids, as if the rows landed.
    """
    ids = get_row_ids(file)
    if ids is None or ids.is_provisional:
        return without_row_ids(file)
    return replace(file, default_row_commit_version=0)


class _ClonedFiles:
    """The files of a table as a clone of it names them."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self.sources: set[str] = set()
        """The locations of the tables whose files they are."""

    def list_files(self, snapshot: LogSnapshot) -> Iterator[Add]:
        for file in snapshot.read_files():
            vector = file.deletion_vector
            yield replace(
                _with_final_row_ids(file),
                path=self._absolute_address(name_inside(file.path, self._place)),
                deletion_vector=None if vector is None else self._move_vector(vector),
                data_change=True,
            )

    def _move_vector(self, vector: DeletionVector) -> DeletionVector:
        if vector.storage_type == "i":
            return vector
        name = (
            get_vector_file_name(vector)
            if vector.storage_type == "u"
            else name_inside(vector.path_or_inline_dv, self._place)
        )
        return replace(vector, storage_type="p", path_or_inline_dv=self._absolute_address(name))

    def _absolute_address(self, name: str) -> str:
        source = self._place.find_source(name) if isinstance(self._place, LinkedPlace) else None
        owner = self._place if source is None else source
        self.sources.add(owner.location)
        return make_absolute_address(
            owner.url, name.removeprefix(f"{owner.url}/") if source is not None else name
        )
