"""Whose a Delta table is: how its own metadata says so, and the commits that change it.

A managed table lists the feature ``managedCommits`` and names its owner in a property; one without the other
is an invalid table. Penstock's tables say which lake they belong to and which table of it they are, so that
no lake ratifies anything for a table that is not its own. All of this is decided from values alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

import msgspec

from penstock.errors import Damaged, InvalidRequest
from penstock.formats.delta.branch_log.branch_log import BranchLog, Read, read_table_definition
from penstock.formats.delta.branch_log.intents import ActionsBodyFile
from penstock.formats.delta.errors import InvalidTable, ManagedElsewhere, UnsupportedFeature
from penstock.formats.delta.protocol.actions import CommitInfo, Metadata, Protocol, parse_action, write_commit
from penstock.formats.delta.protocol.clones import OWNER_CONF, clone_sources, write_sources
from penstock.formats.delta.protocol.column_mapping import mapping_faults
from penstock.formats.delta.protocol.engine_name import engine_info
from penstock.formats.delta.protocol.feature_alignment import align_protocol_and_metadata, find_disagreements
from penstock.formats.delta.protocol.feature_table import (
    BASIC,
    ENGINE,
    IN_COMMIT_TIMESTAMP,
    MANAGED_COMMITS,
)
from penstock.formats.delta.protocol.features import (
    WRITER_FEATURES_VERSION,
    FeatureRefusal,
    add_required_features,
    enabled_features,
    find_unwritable_features,
    oldest_protocol,
    supported_features,
    with_features,
)
from penstock.formats.delta.protocol.iceberg_compat import iceberg_faults
from penstock.formats.delta.protocol.lint import ENABLED_TIMESTAMP, ENABLED_VERSION, OWNER_NAME, TIMESTAMPS
from penstock.formats.delta.protocol.lint_metadata import find_unsupported_columns
from penstock.formats.delta.protocol.properties import (
    MATERIALIZE_PARTITIONS,
    MATERIALIZED_PARTITIONS,
    PROTECTED_BEFORE,
    UNIFORM,
    iceberg_version,
    is_on,
)
from penstock.formats.delta.protocol.property_changes import FEATURE_PROPERTY, asked_features
from penstock.formats.delta.protocol.row_ids import NO_ROW_ID, name_row_columns
from penstock.formats.rows.schema import parse_schema
from penstock.model.decoders import get_json_decoder
from penstock.storage.locations import hide_secrets

PENSTOCK: Final = "penstock"
"""The owner's name in every table that a lake owns."""
PROTECTED: Final = (
    OWNER_NAME,
    OWNER_CONF,
    TIMESTAMPS,
    ENABLED_VERSION,
    ENABLED_TIMESTAMP,
    PROTECTED_BEFORE,
)
"""Properties of a managed table that no writer changes, and no restore of an earlier version."""
NOTED: Final = "timestamps"
"""The owner's setting that tells what managing added to a table, to be taken away when it is released:"""
ADDED: Final = "added"
"""in-commit timestamps, the feature and all;"""
ENABLED: Final = "enabled"
"""or only their use, by a table that had the feature already."""


RESYNC: Final = "RESYNC TABLE"
"""The operation of a commit by which a log that the lake did not know becomes that of another table of it."""


class OwnerIdentity(msgspec.Struct, frozen=True):
    """A lake, as the tables that it owns name it."""

    lake_id: str
    url: str = ""
    """Where the lake is found, empty if nobody else can open it. Secrets in it are never written down."""

    def make_owner_properties(
        self, table_id: UUID, noted: str = "", sources: Sequence[str] = ()
    ) -> dict[str, str]:
        """The properties by which a table names this lake as its owner, and notes what managing added, and
        the tables whose files a clone has."""
        identity = {"lake": self.lake_id, "table": str(table_id), **write_sources(sources)}
        if noted:
            identity[NOTED] = noted
        if self.url and not self.url.startswith("memory:"):
            identity["at"] = hide_secrets(self.url)
        return {OWNER_NAME: PENSTOCK, OWNER_CONF: msgspec.json.encode(identity, order="sorted").decode()}

    def is_owner(self, owner: TableOwner | None) -> bool:
        """Whether a table that names this owner is one of the lake's."""
        return owner is not None and owner.name == PENSTOCK and owner.lake == self.lake_id


class TableOwner(msgspec.Struct, frozen=True):
    """The owner that a table names."""

    name: str
    conf: Mapping[str, str] = {}

    @property
    def lake(self) -> str:
        """The id of the lake; empty if the owner is no lake."""
        return self.conf.get("lake", "") if self.name == PENSTOCK else ""

    @property
    def table(self) -> UUID | None:
        """Which table of the lake it is."""
        try:
            return UUID(self.conf["table"]) if self.name == PENSTOCK else None
        except (KeyError, ValueError):
            return None

    @property
    def lake_address(self) -> str:
        """Where the lake was found when it took the table; empty if it did not say."""
        return self.conf.get("at", "") if self.name == PENSTOCK else ""

    @property
    def noted_addition(self) -> str:
        """What the lake added to the table: ``ADDED``, ``ENABLED``, or empty for nothing."""
        return self.conf.get(NOTED, "") if self.name == PENSTOCK else ""

    def __str__(self) -> str:
        where = f" at {self.lake_address}" if self.lake_address else ""
        return f"lake {self.lake}{where}" if self.lake else f"'{self.name}'"


def find_owner(protocol: Protocol, metadata: Metadata, table: str = "the table") -> TableOwner | None:
    """The owner of a table's commits, ``None`` for a table of the file system.

    ``InvalidTable`` if the feature and the property do not agree, or the owner's settings are no map of text:
    such a table can be read, and must not be written by anybody.
    """
    name, conf = metadata.configuration.get(OWNER_NAME), metadata.configuration.get(OWNER_CONF)
    if (MANAGED_COMMITS in supported_features(protocol)) != (name is not None):
        has, lacks = f"the feature '{MANAGED_COMMITS}'", f"the property '{OWNER_NAME}'"
        if name is not None:
            has, lacks = lacks, has
        raise InvalidTable(
            f"{table} is invalid: it has {has}, but not {lacks}\n  It cannot be determined whether the table "
            "is managed, so nothing may be committed to it. Copy its rows into a table of the lake "
            "(lake.delta.read).",
            table=table,
        )
    if name is None:
        return None
    try:
        return TableOwner(name, {} if conf is None else get_json_decoder(dict[str, str]).decode(conf))
    except (msgspec.MsgspecError, ValueError, RecursionError) as problem:
        raise InvalidTable(
            f"{table} is invalid: the property '{OWNER_CONF}' is not a JSON object of texts: {problem}",
            table=table,
        ) from None


def read_line_owner(line: BranchLog, read: Read, table: str = "the table") -> TableOwner | None:
    """The owner that a table names at the end of a line. Raises as ``find_owner``."""
    declared = read_table_definition(line, read)
    protocol, metadata = parse_action(declared.protocol), parse_action(declared.metadata)
    if not isinstance(protocol, Protocol) or not isinstance(metadata, Metadata):
        raise Damaged(f"the lake no longer has the protocol and metadata of {table}")
    return find_owner(protocol, metadata, table)


def check_adoptable(protocol: Protocol, metadata: Metadata, table: str) -> None:
    """Raise unless a table belongs to the file system, and a lake could ratify commits to it and serve rows.

    ``ManagedElsewhere`` names the owner: a table never goes from one owner to another directly.
    ``UnsupportedFeature`` names all that stands against it.
    """
    owner = find_owner(protocol, metadata, table)
    if owner is not None:
        way = f"  Release it there first: penstock delta release … --lake {owner.lake_address or '…'}"
        if not owner.lake:
            way = f"  Release it with the engine that '{owner.name}' belongs to."
        raise ManagedElsewhere(
            f"{table} already belongs to {owner}, and a table can have one owner only\n{way}\n  Only if that "
            "owner is lost for good: penstock delta recover. It recovers only the versions that were "
            "published.",
            table=table,
            owner=owner.name,
            lake=owner.lake,
        )
    refusals = (*find_unwritable_features(protocol, metadata), *find_disagreements(protocol, metadata))
    if not refusals:  # else a feature tells more of the same columns
        refusals = (
            *_unsupported_column_refusals(metadata),
            *_find_mapping_refusals(metadata),
            *_find_iceberg_refusals(metadata),
        )
    _refuse_features(refusals, table)


def check_writable(protocol: Protocol, metadata: Metadata, table: str) -> None:
    """``UnsupportedFeature``, with all reasons, if commits to such a table cannot be ratified."""
    _refuse_features(find_unwritable_features(protocol, metadata), table)


def _find_mapping_refusals(metadata: Metadata) -> Iterator[FeatureRefusal]:
    for reason in mapping_faults(metadata, parse_schema(metadata.schema_string)):
        yield FeatureRefusal("columnMapping", f"cannot be written: {reason}", ENGINE)


def _find_iceberg_refusals(metadata: Metadata) -> Iterator[FeatureRefusal]:
    version = iceberg_version(metadata.configuration)
    if metadata.configuration.get(UNIFORM, "").strip():
        name = f"'{UNIFORM}'"
        yield FeatureRefusal(
            UNIFORM,
            "lets engines of Iceberg read the table, and they would not see commits of a lake",
            f"unset {name} (ALTER TABLE … UNSET TBLPROPERTIES), or copy its rows into a table of the lake",
        )
    for reason in iceberg_faults(metadata, None):
        yield FeatureRefusal(f"icebergCompatV{version}", f"cannot be written: {reason}", ENGINE)


def _unsupported_column_refusals(metadata: Metadata) -> Iterator[FeatureRefusal]:
    for name, why in find_unsupported_columns(metadata):
        yield FeatureRefusal(
            name,
            f"{why}: rows of the table could not be served",
            "copy the other columns into a table of the lake",
        )


def _refuse_features(refusals: Sequence[FeatureRefusal], table: str) -> None:
    if refusals:
        raise UnsupportedFeature(
            "\n  ".join((f"{table} cannot be managed by a lake:", *map(str, refusals))),
            table=table,
            feature=refusals[0].feature,
            features=tuple(refusal.feature for refusal in refusals),
        )


def protected_changes(before: Metadata, after: Metadata) -> tuple[str, ...]:
    """The properties of a managed table that a writer's commit changes although only its owner may."""
    old_properties, becomes = before.configuration, after.configuration
    return tuple(name for name in PROTECTED if old_properties.get(name) != becomes.get(name))


class NewTable(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody who creates a table says about it."""

    schema_string: str
    partition_columns: tuple[str, ...] = ()
    properties: Mapping[str, str] = {}
    name: str | None = None
    description: str | None = None
    id: UUID | None = None
    """What it is to be known by; made up if nothing is given."""
    actions: bytes | ActionsBodyFile | None = None
    """Its first files, as the lines of a commit; ``None`` for an empty table."""
    sources: tuple[str, ...] = ()
    """The locations of other tables that files of it lie in: it is a clone."""
    highest_row_id: int = NO_ROW_ID
    """How far ids of rows are given in its first files, if these have any."""


def first_commit(
    new: NewTable,
    identity: OwnerIdentity,
    table_id: UUID,
    uuid: UUID,
    now_ms: int,
    commit_info: CommitInfo = CommitInfo(),
) -> tuple[CommitInfo, Protocol, Metadata]:
    """The first actions of a table that is the lake's from the beginning; files may follow.

    ``commit_info`` is what a writer says of the commit, whose time is now in any case.

    The protocol has what the properties and columns enable, and no more that readers would have to know, so
    that as many as possible do. ``InvalidRequest`` for properties that are not the writer's to set.
    """
    requested_features = _find_asked_features(new.properties)
    configuration = {
        name: value for name, value in new.properties.items() if not name.startswith(FEATURE_PROPERTY)
    }
    noted = ENABLED if IN_COMMIT_TIMESTAMP in requested_features else ADDED
    if MATERIALIZE_PARTITIONS in requested_features:
        configuration[MATERIALIZED_PARTITIONS] = "true"
    configuration = name_row_columns(configuration)
    configuration |= {TIMESTAMPS: "true"} | identity.make_owner_properties(table_id, noted, new.sources)
    metadata = Metadata(
        id=str(table_id),
        schema_string=new.schema_string,
        partition_columns=new.partition_columns,
        configuration=configuration,
        name=new.name,
        description=new.description,
        created_time=now_ms,
    )
    features = (
        enabled_features(metadata)
        | add_required_features(requested_features)
        | BASIC
        | {MANAGED_COMMITS, IN_COMMIT_TIMESTAMP}
    )
    protocol = with_features(Protocol(min_reader_version=1, min_writer_version=1), features)
    parameters = {"partitionBy": msgspec.json.encode(new.partition_columns).decode()}
    info = _make_commit_info("CREATE TABLE", parameters, uuid, now_ms, now_ms)
    owner_fields = {"timestamp", "inCommitTimestamp", "isBlindAppend"}
    writer_fields = {name: value for name, value in commit_info.fields.items() if name not in owner_fields}
    return CommitInfo({**info.fields, **writer_fields}), protocol, metadata


class TableBeforeCommit(msgspec.Struct, frozen=True, kw_only=True):
    """A table before a commit that changes whose it is."""

    version: int
    protocol: Protocol
    metadata: Metadata
    timestamp_ms: int
    """The in-commit timestamp of the version; of a table without such, the time of its file."""


def encode_adoption_commit(
    before: TableBeforeCommit,
    identity: OwnerIdentity,
    table_id: UUID,
    uuid: UUID,
    now_ms: int,
    operation: str = "ADOPT TABLE",
) -> bytes:
    """The commit after which a table is the lake's, whole: for the version after ``before``.

    Versions of the protocol that stood for features are replaced by the list of them. A table that had no
    in-commit timestamps has them from this version on, and says so.
    """
    time = max(now_ms, before.timestamp_ms + 1)
    properties = before.metadata.configuration
    # Of a table that comes from the file system nothing of the kind is believed.
    sources = () if find_owner(before.protocol, before.metadata) is None else clone_sources(properties)
    configuration = {
        **properties,
        **identity.make_owner_properties(table_id, _feature_added_on_adoption(before), sources),
    }
    if not is_timed(before.protocol, before.metadata):
        configuration[TIMESTAMPS] = "true"
        configuration[ENABLED_VERSION] = str(before.version + 1)
        configuration[ENABLED_TIMESTAMP] = str(time)
    metadata = msgspec.structs.replace(before.metadata, configuration=configuration)
    protocol, metadata = align_protocol_and_metadata(_with_managed_features(before.protocol), metadata)
    return _encode_conversion(operation, before, protocol, metadata, uuid, now_ms, time)


def _feature_added_on_adoption(before: TableBeforeCommit) -> str:
    """What the lake adds to a table on adoption, or what a lost owner had added."""
    if not is_timed(before.protocol, before.metadata):
        return ENABLED if IN_COMMIT_TIMESTAMP in supported_features(before.protocol) else ADDED
    owner = find_owner(before.protocol, before.metadata)
    return "" if owner is None else owner.noted_addition


def encode_release_commit(before: TableBeforeCommit, uuid: UUID, now_ms: int) -> bytes:
    """The commit after which a table is the file system's again, whole.

    It loses the feature, what named its owner, and in-commit timestamps if they came with the owner: engines
    that do not know them can write the table again. Those that it had before stay. Features that a version
    of the protocol stands for are not listed any more, for engines that know no lists.
    """
    time = max(now_ms, before.timestamp_ms + 1)
    owner = find_owner(before.protocol, before.metadata)
    noted = "" if owner is None else owner.noted_addition
    features = {MANAGED_COMMITS} | ({IN_COMMIT_TIMESTAMP} if noted == ADDED else set())
    properties = {OWNER_NAME, OWNER_CONF}
    if noted in (ADDED, ENABLED):
        properties |= {TIMESTAMPS, ENABLED_VERSION, ENABLED_TIMESTAMP}
    protocol = msgspec.structs.replace(
        before.protocol,
        writer_features=tuple(name for name in before.protocol.writer_features or () if name not in features),
    )
    configuration = {
        name: value for name, value in before.metadata.configuration.items() if name not in properties
    }
    metadata = msgspec.structs.replace(before.metadata, configuration=configuration)
    protocol, metadata = align_protocol_and_metadata(protocol, metadata)
    return _encode_conversion(
        "RELEASE TABLE", before, oldest_protocol(protocol), metadata, uuid, now_ms, time
    )


def is_timed(protocol: Protocol, metadata: Metadata) -> bool:
    """Whether a table's commits carry in-commit timestamps."""
    enabled = is_on(metadata.configuration, TIMESTAMPS)
    return enabled and IN_COMMIT_TIMESTAMP in supported_features(protocol)


def _encode_conversion(
    operation: str,
    before: TableBeforeCommit,
    protocol: Protocol,
    metadata: Metadata,
    uuid: UUID,
    now_ms: int,
    time_ms: int,
) -> bytes:
    info = _make_commit_info(operation, {}, uuid, now_ms, time_ms, readVersion=before.version)
    return write_commit((info, protocol, metadata))


def _make_commit_info(
    operation: str, parameters: dict[str, str], uuid: UUID, now_ms: int, time_ms: int, **more: Any
) -> CommitInfo:
    """Who did what: in-commit timestamps stand in the very first line."""
    return CommitInfo(
        {
            "timestamp": now_ms,
            "inCommitTimestamp": time_ms,
            "operation": operation,
            "operationParameters": parameters,
            **more,
            "isBlindAppend": False,
            "engineInfo": engine_info(),
            "txnId": str(uuid),
        }
    )


def _with_managed_features(protocol: Protocol) -> Protocol:
    """The protocol with all of its features listed, and those that a managed table needs."""
    features = supported_features(protocol) | {MANAGED_COMMITS, IN_COMMIT_TIMESTAMP}
    return msgspec.structs.replace(
        protocol, min_writer_version=WRITER_FEATURES_VERSION, writer_features=tuple(sorted(features))
    )


def _find_asked_features(properties: Mapping[str, str]) -> frozenset[str]:
    """The features that properties ask for by name."""
    _raise_refusals(
        [name for name in properties if name in PROTECTED], "can only be set by the owner of the table"
    )
    return asked_features(properties)


def _raise_refusals(names: Sequence[str], why: str) -> None:
    if names:
        raise InvalidRequest(f"the property '{names[0]}' {why}: leave it out", property=names[0])
