"""A table of each feature: how Delta Spark makes it, how a lake does, and what is done to it.

All have the columns ``id`` and ``name``; what else they have is null, computed or the same for all rows.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]

from penstock.formats.rows.schema import ArrayType, Field, StructType, Type

ONE: Final = {"value": b"\x0c\x01", "metadata": b"\x01\x00\x00"}
"""The variant 1."""


class FeatureTable(msgspec.Struct, frozen=True, kw_only=True):
    """What makes a table one of a feature."""

    columns: str = ""
    """Beside the two that all have, as SQL declares them."""
    clause: str = ""
    properties: dict[str, str] = {}
    statements: tuple[str, ...] = ()
    """What Delta Spark does to the table ``{t}`` with rows 1 and 2 in it."""
    fields: tuple[Field, ...] = ()
    """The same columns, as a lake makes them."""
    more_properties: dict[str, str] = {}
    """Those that do what statements of Delta Spark's do."""
    creation: dict[str, Any] = {}
    """What ``lake.delta.create`` is told beside schema and properties."""
    extra: dict[str, tuple[Any, Any, str]] = {}
    """Columns that rows come with: Arrow's type, the value, and it as an expression of Spark's."""
    shown: dict[str, Any] = {}
    """What Delta Spark shows of every row beside the two columns: expressions, with their values."""
    first: str = "id BIGINT, name STRING"

    @property
    def schema(self) -> StructType:
        return StructType((column("id", "long"), column("name", "string"), *self.fields))

    @property
    def arrow_schema(self) -> Any:
        """Of the rows that are written."""
        beside = [(name, kind) for name, (kind, _, _) in self.extra.items()]
        return pa.schema([("id", pa.int64()), ("name", pa.string()), *beside])

    @property
    def own_properties(self) -> dict[str, str]:
        """Of a table that a lake makes, without what it always has."""
        properties = {**self.properties, **self.more_properties}
        return {name: value for name, value in properties.items() if name != "delta.enableInCommitTimestamps"}

    @property
    def property_clause(self) -> str:
        if not self.properties:
            return ""
        pairs = ", ".join(f"'{name}' = '{value}'" for name, value in self.properties.items())
        return f"TBLPROPERTIES ({pairs})"


def column(name: str, kind: Type, **notes: Any) -> Field:
    return Field(name=name, type=kind, nullable=True, metadata=notes)


def _switched(name: str) -> FeatureTable:
    return FeatureTable(properties={name: "true"})


def _partitioned(**properties: str) -> FeatureTable:
    return FeatureTable(
        columns="day STRING",
        clause="PARTITIONED BY (day)",
        properties=properties,
        fields=(column("day", "string"),),
        creation={"partition_by": "day"},
        extra={"day": (pa.string(), "mon", "'mon'")},
        shown={"day": "mon"},
    )


def _mapped(mode: str) -> FeatureTable:
    return FeatureTable(
        first="id BIGINT, title STRING",
        properties={"delta.columnMapping.mode": mode},
        statements=("ALTER TABLE {t} RENAME COLUMN title TO name",),
    )


def _variants(**properties: str) -> FeatureTable:
    return FeatureTable(
        columns="v VARIANT",
        properties=properties,
        fields=(column("v", "variant"),),
        extra={"v": (pa.struct([("value", pa.binary()), ("metadata", pa.binary())]), ONE, "parse_json('1')")},
        shown={"to_json(v)": "1"},
    )


_IDENTITY: Final = {
    "delta.identity.start": 1,
    "delta.identity.step": 1,
    "delta.identity.allowExplicitInsert": False,
}
TABLES: Final[dict[str, FeatureTable]] = {
    "columnMapping (name)": _mapped("name"),
    "columnMapping (id)": _mapped("id"),
    "rowTracking": _switched("delta.enableRowTracking"),
    "checkConstraints": FeatureTable(
        statements=("ALTER TABLE {t} ADD CONSTRAINT positive CHECK (id > 0)",),
        more_properties={"delta.constraints.positive": "id > 0"},
    ),
    "invariants": FeatureTable(
        columns="must STRING NOT NULL",
        fields=(msgspec.structs.replace(column("must", "string"), nullable=False),),
        extra={"must": (pa.string(), "x", "'x'")},
        shown={"must": "x"},
    ),
    "generatedColumns": FeatureTable(
        columns="twice BIGINT GENERATED ALWAYS AS (id * 2)",
        fields=(column("twice", "long", **{"delta.generationExpression": "id * 2"}),),
        shown={"twice - 2 * id": 0},
    ),
    "identityColumns": FeatureTable(
        columns="number BIGINT GENERATED ALWAYS AS IDENTITY",
        fields=(column("number", "long", **_IDENTITY),),
        shown={"number > 0": True},
    ),
    "allowColumnDefaults": FeatureTable(
        columns="kind STRING DEFAULT 'plain'",
        properties={"delta.feature.allowColumnDefaults": "supported"},
        fields=(column("kind", "string", CURRENT_DEFAULT="'plain'"),),
        shown={"kind": "plain"},
    ),
    "typeWidening": FeatureTable(
        first="id INT, name STRING",
        properties={"delta.enableTypeWidening": "true"},
        statements=("ALTER TABLE {t} ALTER COLUMN id TYPE BIGINT",),
    ),
    "clustering": FeatureTable(clause="CLUSTER BY (id)", creation={"cluster_by": "id"}),
    "deletionVectors": _switched("delta.enableDeletionVectors"),
    "changeDataFeed": _switched("delta.enableChangeDataFeed"),
    "timestampNtz": FeatureTable(columns="at TIMESTAMP_NTZ", fields=(column("at", "timestamp_ntz"),)),
    "variantType": _variants(),
    "variantShredding": _variants(**{"delta.enableVariantShredding": "true"}),
    "icebergCompatV1": _partitioned(**{"delta.enableIcebergCompatV1": "true"}),
    "icebergCompatV2": _partitioned(**{"delta.enableIcebergCompatV2": "true"}),
    "icebergCompatV2 (arrays)": FeatureTable(
        columns="tags ARRAY<STRING>",
        properties={"delta.enableIcebergCompatV2": "true"},
        fields=(column("tags", ArrayType(element_type="string", contains_null=True)),),
        extra={"tags": (pa.list_(pa.string()), ["x"], "array('x')")},
        shown={"tags[0]": "x"},
    ),
    "icebergCompatV3": _partitioned(**{"delta.enableIcebergCompatV3": "true"}),
    "materializePartitionColumns": _partitioned(**{"delta.enableMaterializePartitionColumnsFeature": "true"}),
    "log features": FeatureTable(
        properties={
            "delta.enableInCommitTimestamps": "true",
            "delta.checkpointPolicy": "v2",
            "delta.feature.vacuumProtocolCheck": "supported",
            "delta.checkpointInterval": "3",
        },
        statements=(
            "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
            "ALTER TABLE {t} DROP FEATURE deletionVectors",
        ),
    ),
}
