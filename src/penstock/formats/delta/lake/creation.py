"""Creating a Delta table with its first rows, as one version and one commit.

The rows are written to files at the table's place first, which is known from its id. Then the table is asked
for together with them, and either both are there or neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec

from penstock.formats.delta.lake.answers import OwnershipResult
from penstock.formats.delta.lake.calls import CreateTable
from penstock.formats.delta.lake.identity_numbers import IdentityNumbers
from penstock.formats.delta.lake.table import data_folder, encode_actions, pack_lines_for_call
from penstock.formats.delta.lake.written_files import remove_files_if_refused
from penstock.formats.delta.protocol.actions import CommitInfo, DomainMetadata, Metadata, parse_commit
from penstock.formats.delta.protocol.clustering import clustering_columns
from penstock.formats.delta.publishing.side_files import note_creation
from penstock.lake.calls import GetChanges, GetContents, GetOutcome
from penstock.lake.job_files import JobStart
from penstock.lake.table_writer import exists_error
from penstock.model.nessie import DeltaTable
from penstock.storage.locations import make_own_place

if TYPE_CHECKING:
    from penstock.lake.lake import Lake


def create_with(lake: Lake, call: CreateTable, rows: Any) -> OwnershipResult:
    """Create a table that has these rows from the beginning.

    If that is refused, the files that were written for it are removed again, as far as possible; not if
    nobody knows whether it was done.
    """
    from penstock.formats.delta.rows.file_writer import write_files

    if (table_made := find_done(lake, call)) is not None:
        return table_made
    check_missing(lake, call)
    began, identity = JobStart.at_lake_time(lake), uuid4()
    place = lake.places.open_place(call.location or make_own_place(lake.warehouse, identity))
    metadata = Metadata(
        id=str(identity),
        schema_string=call.schema,
        partition_columns=call.partition_by,
        configuration=call.properties,
    )
    if call.location is None:
        note_creation(place, lake.id)
    actions_text = "" if call.actions is None else str(call.actions)
    domains = [
        action_line.action
        for action_line in parse_commit(actions_text.encode())
        if isinstance(action_line.action, DomainMetadata)
    ]
    numbers = IdentityNumbers(metadata)
    adds = write_files(
        place,
        metadata,
        rows,
        numbers=numbers,
        prefix=data_folder(lake, call.branch),
        clustering=clustering_columns({domain.domain: domain for domain in domains}),
    )
    info = CommitInfo({"operation": "CREATE TABLE AS SELECT"})
    with remove_files_if_refused(place, adds):
        began.check_in_time()
        actions = pack_lines_for_call(lambda: place, encode_actions([info, *domains, *adds]))
        schema = next(iter(numbers.list_metadata_changes(metadata)), metadata).schema_string
        return lake.do(msgspec.structs.replace(call, id=identity, schema=schema, actions=actions))


def find_done(lake: Lake, call: CreateTable) -> OwnershipResult | None:
    """The table, if the same was asked for before: its files have new names each time.

    At a named place it was promised first. What came of the promise is found out here, if nobody has;
    ``KeyNotFound`` if nothing did, since somebody else's table came there first, or if it was dropped since.
    """
    if call.idempotency_key is None:
        return None
    branch = call.branch or lake.default_branch
    landing = lake.do(GetOutcome(key=call.idempotency_key, branch=branch))
    if landing is None or not landing.commits:
        return None
    changes = lake.do(GetChanges(revision=landing.head, via=branch))
    if all(change.key != call.key for change in changes):
        return None  # the key was used for something else, and the call will be refused for that
    return msgspec.structs.replace(call, branch=branch).recover(lake.do, landing)


def check_missing(lake: Lake, call: CreateTable) -> None:
    """``CommitConflict`` if the table is there already, before anything is written for nothing."""
    at = call.branch or lake.default_branch
    for entry in lake.do(GetContents(at=at, key=(call.key,))):
        if isinstance(entry.content, DeltaTable) and entry.content.state:
            raise exists_error(call.key)
