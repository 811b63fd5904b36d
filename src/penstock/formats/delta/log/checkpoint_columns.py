"""Actions as the columns of a checkpoint: what a row looks like, and how a batch of actions becomes rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from penstock.formats.delta.log.checkpoint_stats import ParsedStatsColumns
from penstock.formats.delta.protocol.actions import (
    ACTION_NAMES,
    Action,
    Add,
    CheckpointMetadata,
    DomainMetadata,
    Metadata,
    Protocol,
    Remove,
    Sidecar,
    Txn,
)
from penstock.formats.rows.arrow_types import pa

FILES: Final = (Add, Remove)
STATE: Final = (Txn, Metadata, Protocol, DomainMetadata)
STATE_V2: Final = (*STATE, CheckpointMetadata, Sidecar)


class CheckpointColumns:
    """The rows of one file of a checkpoint, in which each of some kinds of actions has a column."""

    def __init__(self, kinds: Sequence[type[Action]], parsed: ParsedStatsColumns) -> None:
        self._parsed = parsed
        fields = _list_action_fields()
        if not parsed.has_json:
            fields[Add].pop("stats")
        fields[Add].update(parsed.structs)
        self._structs = {kind: pa.struct(fields[kind]) for kind in kinds}
        self.schema = pa.schema([(ACTION_NAMES[kind], struct) for kind, struct in self._structs.items()])

    def make_batch(self, actions: Sequence[Action]) -> Any:
        """A row for each action; all of them are of one kind."""
        (kind,) = {type(action) for action in actions}
        arrays = [
            self._make_column(kind, actions) if action_type is kind else pa.nulls(len(actions), struct)
            for action_type, struct in self._structs.items()
        ]
        return pa.record_batch(arrays, schema=self.schema)

    def _make_column(self, kind: type[Action], actions: Sequence[Action]) -> Any:
        attributes = {field.encode_name: field.name for field in msgspec.structs.fields(kind)}
        struct = self._structs[kind]
        fields = [struct.field(index) for index in range(struct.num_fields)]
        arrays = []
        for field in fields:
            if field.name in attributes:
                values = [_to_builtins(getattr(action, attributes[field.name])) for action in actions]
            else:
                values = self._parsed.parse_values(
                    field.name, [action for action in actions if isinstance(action, Add)]
                )
            arrays.append(pa.array(values, field.type))
        return pa.StructArray.from_arrays(arrays, fields=fields)


def _to_builtins(value: Any) -> Any:
    return msgspec.to_builtins(value) if isinstance(value, msgspec.Struct) else value


def _list_action_fields() -> dict[type[Action], dict[str, Any]]:
    """Per kind of action its fields and their types. A tombstone has neither statistics nor tags here."""
    text, long, integer, truth = pa.string(), pa.int64(), pa.int32(), pa.bool_()
    texts, names = pa.map_(text, text), pa.list_(text)
    vector = {"storageType": text, "pathOrInlineDv": text, "offset": integer, "sizeInBytes": integer}
    file = {
        "path": text,
        "partitionValues": texts,
        "size": long,
        "dataChange": truth,
        "deletionVector": pa.struct({**vector, "cardinality": long}),
        "baseRowId": long,
        "defaultRowCommitVersion": long,
    }
    versions = {"minReaderVersion": integer, "minWriterVersion": integer}
    table = {"id": text, "name": text, "description": text}
    return {
        Add: {**file, "modificationTime": long, "tags": texts, "clusteringProvider": text, "stats": text},
        Remove: {**file, "deletionTimestamp": long, "extendedFileMetadata": truth},
        Txn: {"appId": text, "version": long, "lastUpdated": long},
        Metadata: {
            **table,
            "format": pa.struct({"provider": text, "options": texts}),
            "schemaString": text,
            "partitionColumns": names,
            "configuration": texts,
            "createdTime": long,
        },
        Protocol: {**versions, "readerFeatures": names, "writerFeatures": names},
        DomainMetadata: {"domain": text, "configuration": text, "removed": truth},
        CheckpointMetadata: {"version": long, "tags": texts},
        Sidecar: {"path": text, "sizeInBytes": long, "modificationTime": long, "tags": texts},
    }
