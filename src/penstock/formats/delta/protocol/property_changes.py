"""Properties and constraints of a table are set or go: what its metadata becomes.

Properties that begin with ``delta.`` mean something to engines. One that no engine knows is refused by its
name, and so is one that writers keep themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Final

from msgspec.structs import replace

from penstock.errors import InvalidRequest
from penstock.formats.delta.protocol.actions import Metadata
from penstock.formats.delta.protocol.change_feed import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION
from penstock.formats.delta.protocol.column_mapping import (
    MAX_ID,
    MODE,
    ColumnMapping,
    assign_columns,
    get_column_mapping,
    has_nested_ids,
    map_columns,
)
from penstock.formats.delta.protocol.column_rules import CONSTRAINTS, Constraint
from penstock.formats.delta.protocol.feature_table import FEATURES
from penstock.formats.delta.protocol.lint_metadata import JUDGED_PROPERTIES
from penstock.formats.delta.protocol.properties import CHANGE_DATA_FEED, complete_properties, is_on
from penstock.formats.delta.protocol.row_ids import name_row_columns
from penstock.formats.rows.schema import parse_schema

FEATURE_PROPERTY: Final = "delta.feature."
"""A property that asks for a feature; it does not stay in the metadata."""
SUPPORTED: Final = "supported"

_ENGINES: Final = "delta."
_KNOWN: Final = frozenset(
    {
        *JUDGED_PROPERTIES,
        *(name for feature in FEATURES.values() for name in feature.properties if not name.endswith(".")),
        "delta.checkpointRetentionDuration",
        "delta.compatibility.symlinkFormatManifest.enabled",
        "delta.dataSkippingStatsColumns",
        "delta.enableFullRetentionRollback",
        "delta.sampleRetentionDuration",
        "delta.targetFileSize",
        "delta.tuneFileSizesForRewrites",
    }
)
_FAMILIES: Final = ("delta.autoOptimize.", "delta.parquet.")
"""How names begin that engines know any number of."""
_KEPT_BY_WRITERS: Final = (MAX_ID, "delta.rowTracking.")
_UNIFORM: Final = "delta.universalFormat."
_VERSIONS: Final = ("delta.minReaderVersion", "delta.minWriterVersion")
_OF_FEED: Final = frozenset({CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP})


def set_properties(metadata: Metadata, properties: Mapping[str, str]) -> Metadata:
    """Metadata with properties set; what asks for a feature by name is left out (``asked_features``).

    ``InvalidRequest`` names a property that cannot be set. The values are judged with all other metadata
    (``lint_metadata``).
    """
    if not properties:
        raise InvalidRequest("no property is given; give at least one")
    for name in properties:
        _check_name(name, metadata)
    stored = {name: value for name, value in properties.items() if not name.startswith(FEATURE_PROPERTY)}
    merged = {**metadata.configuration, **properties}
    configuration = {**merged, **complete_properties(merged)}
    for name in (*(properties.keys() - stored.keys()), *({MODE} - merged.keys())):
        configuration.pop(name, None)  # columns of a table with files are mapped by somebody who says so
    changed = replace(metadata, configuration=name_row_columns(configuration))
    _check_feed(changed)
    mode = changed.configuration.get(MODE, "").lower()
    if mode == ColumnMapping.NAME and get_column_mapping(metadata) is ColumnMapping.NONE:
        changed = map_columns(changed)
    return assign_columns(changed) if has_nested_ids(changed) and mode else changed


def unset_properties(metadata: Metadata, names: Iterable[str], *, if_exists: bool = False) -> Metadata:
    """Metadata without some properties. ``InvalidRequest`` for one that the table does not have, unless it
    may be missing, and for one that cannot be unset."""
    removed = tuple(names)
    if not removed:
        raise InvalidRequest("no property is given; give at least one")
    for name in removed:
        _check_name(name, metadata)
        if name not in metadata.configuration and not if_exists:
            raise InvalidRequest(f"the table has no property '{name}'", property=name)
    remaining = {name: value for name, value in metadata.configuration.items() if name not in removed}
    return replace(metadata, configuration=remaining)


def asked_features(properties: Mapping[str, str]) -> frozenset[str]:
    """The features that properties ask for by name. ``InvalidRequest`` for one that is not known."""
    features = set()
    for name, value in properties.items():
        if not name.startswith(FEATURE_PROPERTY):
            continue
        if value != SUPPORTED:
            raise InvalidRequest(
                f"the property '{name}' must be '{SUPPORTED}' or be left out, got '{value}'", property=name
            )
        feature = name.removeprefix(FEATURE_PROPERTY)
        if feature not in FEATURES:
            raise InvalidRequest(
                f"this Penstock does not support the feature '{feature}': leave it out", property=name
            )
        features.add(feature)
    return frozenset(features)


def add_constraint(metadata: Metadata, constraint: Constraint) -> Metadata:
    """Metadata with one constraint more. ``InvalidRequest`` if there is one of that name."""
    if not constraint.name.strip() or not constraint.expression.strip():
        raise InvalidRequest("a constraint needs a name and an expression")
    existing = _find_constraint(metadata, constraint.name)
    if existing is not None:
        raise InvalidRequest(
            f"there is already a constraint '{constraint.name}' ({metadata.configuration[existing]}); drop "
            "it first",
            constraint=constraint.name,
        )
    name = f"{CONSTRAINTS}{constraint.name.lower()}"
    return replace(metadata, configuration={**metadata.configuration, name: constraint.expression})


def drop_constraint(metadata: Metadata, name: str, *, if_exists: bool = False) -> Metadata:
    """Metadata without a constraint; the same, if it has none of that name and may be without."""
    existing = _find_constraint(metadata, name)
    if existing is None and not if_exists:
        names = sorted(
            text.removeprefix(CONSTRAINTS) for text in metadata.configuration if text.startswith(CONSTRAINTS)
        )
        raise InvalidRequest(
            f"the table has no constraint '{name}'; it has {', '.join(names) or 'none'}", constraint=name
        )
    remaining = {text: value for text, value in metadata.configuration.items() if text != existing}
    return replace(metadata, configuration=remaining)


def _find_constraint(metadata: Metadata, name: str) -> str | None:
    """The property that holds a constraint, whatever the case of its name."""
    searched = f"{CONSTRAINTS}{name}".lower()
    return next((text for text in metadata.configuration if text.lower() == searched), None)


def _check_name(name: str, metadata: Metadata) -> None:
    """``InvalidRequest`` for a property that nobody sets or unsets as such."""
    if not name.strip():
        raise InvalidRequest("a property needs a name")
    if name.startswith(CONSTRAINTS):
        raise InvalidRequest(
            f"'{name}' is a constraint: add_constraint and drop_constraint change it", property=name
        )
    if name.startswith(_KEPT_BY_WRITERS):
        raise InvalidRequest(
            f"the property '{name}' is maintained by the writers of the table", property=name
        )
    if name in _VERSIONS:
        raise InvalidRequest(
            f"'{name}' is not a property: the protocol versions follow from the features that the table uses",
            property=name,
        )
    if name.startswith(_UNIFORM):
        raise InvalidRequest(
            f"the property '{name}' makes a table readable as Iceberg (UniForm), which tables of a lake do "
            "not support",
            property=name,
        )
    is_known = name in _KNOWN or name.startswith((*_FAMILIES, FEATURE_PROPERTY))
    if not name.startswith(_ENGINES) or is_known or name in metadata.configuration:
        return
    near = get_close_matches(name, sorted(_KNOWN), 1)
    hint = f"; did you mean '{near[0]}'?" if near else "; your own properties must not begin with 'delta.'"
    raise InvalidRequest(f"unknown property '{name}'{hint}", property=name)


def _check_feed(metadata: Metadata) -> None:
    if not is_on(metadata.configuration, CHANGE_DATA_FEED):
        return
    for field in parse_schema(metadata.schema_string).fields:
        if field.name.lower() in _OF_FEED:
            raise InvalidRequest(
                f"the table has a column '{field.name}', as the change data feed does: rename it first",
                column=field.name,
            )
