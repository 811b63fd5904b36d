"""The features of Delta tables that Penstock knows, with what it does about each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final, TypeAlias

import msgspec

from penstock.formats.delta.protocol.schema import Field

MANAGED_COMMITS: Final = "managedCommits"
IN_COMMIT_TIMESTAMP: Final = "inCommitTimestamp"
ROW_TRACKING: Final = "rowTracking"


class Support(StrEnum):
    """Whether a table with a feature is read, or written."""

    ALWAYS = "always"
    UNUSED = "unused"
    """As long as the table lists the feature, but makes no use of it."""
    NEVER = "never"


ColumnTest: TypeAlias = Callable[[Field], bool]


class Feature(msgspec.Struct, frozen=True, kw_only=True):
    """A feature that Penstock knows."""

    name: str
    reader: bool = False
    """Readers must understand it too; the table then lists it twice."""
    reading: Support = Support.ALWAYS
    writing: Support = Support.ALWAYS
    why: str = ""
    """Why it is not read, or not written: the end of a sentence that begins with its name."""
    advice: str = ""
    """What somebody can do about it."""
    reader_version: int | None = None
    """The version that stands for it, of a feature older than the lists."""
    writer_version: int | None = None
    properties: Mapping[str, tuple[str, ...]] = {}
    """Properties that make use of it, with the values that do, or none if every value does. A name that ends
    in a dot stands for all that begin with it."""
    column: ColumnTest | None = None
    """Whether a column makes use of it."""
    binds_writers: bool = True
    """A transaction that began before the table had it cannot be made to fit it afterwards."""


def _noted(*words: str) -> ColumnTest:
    """A column whose metadata holds one of these words."""
    return lambda field: any(word in field.metadata for word in words)


def _typed(name: str) -> ColumnTest:
    return lambda field: name in _names_of(field.type)


def _names_of(kind: object) -> tuple[str, ...]:
    """The names of the plain types in a type; fields in it are walked by themselves."""
    if isinstance(kind, str):
        return (kind,)
    inside = [getattr(kind, name, None) for name in ("element_type", "key_type", "value_type")]
    return tuple(found for one in inside if one is not None for found in _names_of(one))


_ON: Final = ("true",)
_ENGINE: Final = "write it with the engine that made it"
_DROP: Final = "drop the feature with the engine that added it"
_CATALOGUE: Final = "read and write it through the catalogue that manages it"


def _iceberg(version: str) -> Feature:
    return Feature(
        name=f"icebergCompat{version}",
        writing=Support.UNUSED,
        why="its files must also suit Iceberg, which is not checked",
        advice=f"set 'delta.enableIcebergCompat{version}' to false",
        properties={f"delta.enableIcebergCompat{version}": _ON},
    )


def _unread(name: str, why: str, column: ColumnTest) -> Feature:
    return Feature(
        name=name,
        reader=True,
        reading=Support.UNUSED,
        writing=Support.UNUSED,
        why=why,
        advice="use the engine that made it",
        column=column,
    )


def _catalogued(name: str, *, reader: bool) -> Feature:
    return Feature(
        name=name,
        reader=reader,
        reading=Support.NEVER if reader else Support.ALWAYS,
        writing=Support.NEVER,
        why="another catalogue decides about its commits",
        advice=_CATALOGUE,
    )


_ALL: Final = (
    # Without conditions.
    Feature(name="appendOnly", writer_version=2, properties={"delta.appendOnly": _ON}),
    Feature(name="changeDataFeed", writer_version=4, properties={"delta.enableChangeDataFeed": _ON}),
    Feature(
        name=IN_COMMIT_TIMESTAMP, properties={"delta.enableInCommitTimestamps": _ON}, binds_writers=False
    ),
    Feature(name="domainMetadata", binds_writers=False),
    Feature(name="timestampNtz", reader=True, column=_typed("timestamp_ntz")),
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
    Feature(
        name=MANAGED_COMMITS,
        properties={"delta.managedCommitOwnerName": (), "delta.managedCommitOwnerConf": ()},
    ),
    # Written as long as the table makes no use of them.
    Feature(
        name="invariants",
        writer_version=2,
        writing=Support.UNUSED,
        why="rows are not checked against the invariants of columns",
        advice=_ENGINE,
        column=_noted("delta.invariants"),
    ),
    Feature(
        name="checkConstraints",
        writer_version=3,
        writing=Support.UNUSED,
        why="rows are not checked against constraints",
        advice="drop the constraints, or " + _ENGINE,
        properties={"delta.constraints.": ()},
    ),
    Feature(
        name="generatedColumns",
        writer_version=4,
        writing=Support.UNUSED,
        why="rows are not checked against the expressions of generated columns",
        advice=_ENGINE,
        column=_noted("delta.generationExpression"),
    ),
    Feature(
        name="columnMapping",
        reader=True,
        reader_version=2,
        writer_version=5,
        writing=Support.UNUSED,
        why="files are not checked for the physical names of columns",
        advice=_ENGINE,
        properties={"delta.columnMapping.mode": ("name", "id")},
    ),
    Feature(
        name="identityColumns",
        writer_version=6,
        writing=Support.UNUSED,
        why="values of identity columns are not handed out",
        advice=_ENGINE,
        column=_noted("delta.identity.start", "delta.identity.step", "delta.identity.highWaterMark"),
    ),
    Feature(
        name="allowColumnDefaults",
        writing=Support.UNUSED,
        why="defaults of columns are not filled in",
        advice="drop the defaults, or " + _ENGINE,
        column=_noted("CURRENT_DEFAULT"),
    ),
    _iceberg("V1"),
    _iceberg("V2"),
    _iceberg("V3"),
    # Read only.
    Feature(
        name=ROW_TRACKING,
        writing=Support.NEVER,
        why="row ids are not handed out",
        advice=_DROP,
        properties={"delta.enableRowTracking": _ON},
    ),
    Feature(
        name="clustering",
        writing=Support.NEVER,
        why="files are not checked for the statistics of clustering columns",
        advice=_DROP,
    ),
    Feature(
        name="checkpointProtection",
        writing=Support.NEVER,
        why="its rules for removing old checkpoints are not kept",
        advice=_DROP,
    ),
    _catalogued("coordinatedCommits-preview", reader=False),
    _catalogued("managed-commit-preview", reader=False),
    # Neither.
    _catalogued("managed-commit-dev", reader=True),
    _catalogued("catalogOwned-preview", reader=True),
    _catalogued("catalogManaged", reader=True),
    # Neither read nor written once the table makes use of them.
    *(
        _unread(name, "variants are not understood", _typed("variant"))
        for name in ("variantType", "variantType-preview", "variantShredding", "variantShredding-preview")
    ),
    *(
        _unread(name, "older files hold other types than the schema says", _noted("delta.typeChanges"))
        for name in ("typeWidening", "typeWidening-preview")
    ),
)

FEATURES: Final[Mapping[str, Feature]] = {one.name: one for one in _ALL}
"""The features that Penstock knows, by name."""
