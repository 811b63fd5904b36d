"""The features of Delta tables that Penstock knows, with what it does about each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final, TypeAlias

import msgspec

from penstock.formats.delta.protocol.properties import (
    ICEBERG_COMPAT,
    MATERIALIZE_PARTITIONS,
    MATERIALIZED_PARTITIONS,
)
from penstock.formats.rows.schema import Field, list_plain_types

MANAGED_COMMITS: Final = "managedCommits"
IN_COMMIT_TIMESTAMP: Final = "inCommitTimestamp"
ROW_TRACKING: Final = "rowTracking"
DOMAIN_METADATA: Final = "domainMetadata"


class FeatureSupport(StrEnum):
    """Whether a table with a feature is read, or written."""

    ALWAYS = "always"
    UNUSED = "unused"
    """As long as the table lists the feature, but makes no use of it that Penstock does not know."""
    NEVER = "never"


ColumnTest: TypeAlias = Callable[[Field], bool]


class Feature(msgspec.Struct, frozen=True, kw_only=True):
    """A feature that Penstock knows."""

    name: str
    reader: bool = False
    """Readers must understand it too; the table then lists it twice."""
    reading: FeatureSupport = FeatureSupport.ALWAYS
    writing: FeatureSupport = FeatureSupport.ALWAYS
    why: str = ""
    """Why it is not read, or not written: the end of a sentence that begins with its name."""
    advice: str = ""
    """What somebody can do about it."""
    reader_version: int | None = None
    """The version that stands for it, of a feature older than the lists."""
    writer_version: int | None = None
    properties: Mapping[str, tuple[str, ...]] = {}
    """Properties that enable it, with the values that do, or none if every value does. A name that ends in a
    dot stands for all that begin with it."""
    marks: tuple[str, ...] = ()
    """Words in the metadata of columns that enable it."""
    column: ColumnTest | None = None
    """Whether a column enables it in another way than by a mark."""
    marks_alone_bind: bool = False
    """Penstock does all that the feature asks for of properties and columns without marks: for ``UNUSED``,
    only a mark counts as use."""
    binds_rows: bool = False
    """Rows that are there satisfy it: a table whose protocol lacks it does not get it by having it listed."""
    requires: tuple[str, ...] = ()
    """Features that a table with this one has, too."""
    binds_writers: bool = True
    """A transaction that began before the table had it cannot be made to fit it afterwards."""


def _has_type(name: str) -> ColumnTest:
    return lambda field: name in list_plain_types(field.type)


_ON: Final = ("true",)
_COPY: Final = "or copy its rows into a table of the lake (lake.delta.read)"
ENGINE: Final = f"write it with the engine that made it, {_COPY}"
"""Advice for a feature that nobody can drop."""
_CATALOGUE: Final = "read and write it through the catalog that manages it"


def _make_iceberg_feature(version: int, *requires: str) -> Feature:
    return Feature(
        name=f"icebergCompatV{version}",
        properties={ICEBERG_COMPAT[version]: _ON},
        binds_rows=True,
        requires=("columnMapping", *requires),
    )


def _make_widening_feature(name: str, properties: Mapping[str, tuple[str, ...]]) -> Feature:
    return Feature(
        name=name,
        reader=True,
        properties=properties,
        marks=("delta.typeChanges",),
        binds_rows=True,
        binds_writers=False,
    )


def _make_catalogue_feature(
    name: str, *, reader: bool, properties: Mapping[str, tuple[str, ...]] = {}
) -> Feature:
    return Feature(
        name=name,
        reader=reader,
        reading=FeatureSupport.NEVER if reader else FeatureSupport.ALWAYS,
        writing=FeatureSupport.NEVER,
        why="another catalog manages its commits",
        advice=_CATALOGUE,
        properties=properties,
    )


def _make_redirect_feature(name: str, *, reader: bool) -> Feature:
    return Feature(
        name=name,
        reader=reader,
        reading=FeatureSupport.NEVER if reader else FeatureSupport.ALWAYS,
        writing=FeatureSupport.NEVER,
        why="it is moving to another location",
        advice="use it there, as its owner says",
        properties={f"delta.{name}": ()},
    )


_ALL: Final = (
    # Without conditions.
    Feature(name="appendOnly", writer_version=2, properties={"delta.appendOnly": _ON}),
    Feature(name="changeDataFeed", writer_version=4, properties={"delta.enableChangeDataFeed": _ON}),
    Feature(
        name=IN_COMMIT_TIMESTAMP, properties={"delta.enableInCommitTimestamps": _ON}, binds_writers=False
    ),
    Feature(name=DOMAIN_METADATA, binds_writers=False),
    Feature(name="timestampNtz", reader=True, column=_has_type("timestamp_ntz"), binds_writers=False),
    Feature(name="vacuumProtocolCheck", reader=True, binds_writers=False),
    Feature(
        name="v2Checkpoint", reader=True, properties={"delta.checkpointPolicy": ("v2",)}, binds_writers=False
    ),
    Feature(
        name="deletionVectors",
        reader=True,
        properties={"delta.enableDeletionVectors": _ON},
        binds_writers=False,
    ),
    # Its rules are for removing old versions from a log: ``log.cleanup`` keeps them, and no writer changes
    # the property that they go by (``owner.ownership``).
    Feature(name="checkpointProtection", binds_writers=False),
    # A file without statistics of the clustering columns does not fit: ``protocol.clustering``.
    Feature(name="clustering", requires=(DOMAIN_METADATA,)),
    # The owner gives ids, and writers of rows keep those of rows that were there: ``protocol.row_ids``.
    Feature(
        name=ROW_TRACKING,
        requires=(DOMAIN_METADATA,),
        properties={"delta.enableRowTracking": _ON},
        binds_rows=True,
        binds_writers=False,
    ),
    Feature(
        name=MANAGED_COMMITS,
        properties={"delta.managedCommitOwnerName": (), "delta.managedCommitOwnerConf": ()},
    ),
    # Writers of rows check them: ``protocol.column_rules``.
    Feature(
        name="invariants",
        writer_version=2,
        marks=("delta.invariants",),
        # Rows are checked for nulls whether the feature is listed or not.
        column=lambda field: not field.nullable,
        marks_alone_bind=True,
        binds_rows=True,
        # Whoever knows the columns knows what it asks for; other columns are a change of the metadata.
        binds_writers=False,
    ),
    Feature(
        name="checkConstraints",
        writer_version=3,
        properties={"delta.constraints.": ()},
        binds_rows=True,
    ),
    # Writers of rows compute them, or check what they are given: ``rows.filled_columns``.
    Feature(
        name="generatedColumns",
        writer_version=4,
        marks=("delta.generationExpression",),
        binds_rows=True,
    ),
    Feature(name="allowColumnDefaults", marks=("CURRENT_DEFAULT",), binds_rows=True),
    Feature(
        name="columnMapping",
        reader=True,
        reader_version=2,
        writer_version=5,
        binds_rows=True,
        properties={"delta.columnMapping.mode": ("name", "id")},
    ),
    Feature(
        name="identityColumns",
        writer_version=6,
        binds_rows=True,
        marks=("delta.identity.start", "delta.identity.step", "delta.identity.highWaterMark"),
    ),
    # What a table may be is said by ``protocol.iceberg_compat``; writers of files do the rest.
    _make_iceberg_feature(1),
    _make_iceberg_feature(2),
    _make_iceberg_feature(3, ROW_TRACKING, DOMAIN_METADATA),
    # Writers go by the property, which a table of a lake that lists the feature has (``feature_alignment``).
    Feature(name=MATERIALIZE_PARTITIONS, properties={MATERIALIZED_PARTITIONS: _ON}, binds_rows=True),
    *map(
        _make_widening_feature,
        ("typeWidening", "typeWidening-preview"),
        ({"delta.enableTypeWidening": _ON}, {}),
    ),
    # No file that is written here is shredded, as tables with shredding allow. Arrow reads no shredded ones
    # (``formats.rows.arrow_types``), Spark does.
    *(
        Feature(name=name, reader=True, column=_has_type("variant"), binds_writers=False)
        for name in ("variantType", "variantType-preview")
    ),
    Feature(
        name="variantShredding",
        reader=True,
        properties={"delta.enableVariantShredding": _ON},
        requires=("variantType",),
        binds_writers=False,
    ),
    Feature(name="variantShredding-preview", reader=True, binds_writers=False),
    # Read only.
    *(
        Feature(
            name=f"icebergWriterCompat{version}",
            writing=FeatureSupport.UNUSED,
            why="its files must also be valid for Iceberg, which Penstock does not check",
            advice=ENGINE,
            properties={f"delta.enableIcebergWriterCompat{version}": _ON},
        )
        for version in ("V1", "V3")
    ),
    _make_redirect_feature("redirectWriterOnly-preview", reader=False),
    _make_catalogue_feature(
        "coordinatedCommits-preview",
        reader=False,
        properties={"delta.coordinatedCommits.commitCoordinator-preview": ()},
    ),
    _make_catalogue_feature("managed-commit-preview", reader=False),
    # Neither.
    _make_catalogue_feature("managed-commit-dev", reader=True),
    _make_catalogue_feature("catalogOwned-preview", reader=True),
    _make_catalogue_feature("catalogManaged", reader=True),
    _make_redirect_feature("redirectReaderWriter-preview", reader=True),
)

FEATURES: Final[Mapping[str, Feature]] = {feature.name: feature for feature in _ALL}
"""The features that Penstock knows, by name."""

BASIC: Final = frozenset({"appendOnly", "invariants"})
"""What version 2 of writers stands for, which every writer in the field has: new tables list them, whether
they make use of them or not."""
