"""Contents that Nessie's API has types for, beside namespaces: its clients read and write them.

They are known to every lake, whether or not it has the format of the table: such a content may be no more
than a pointer to a table that others look after.
"""

from __future__ import annotations

from penstock.model.content import Content, ManagedTable


class IcebergTable(Content, frozen=True, kw_only=True, tag=1):
    """An Iceberg table: the pointer to its metadata, and the ids that are current."""

    content_type = "ICEBERG_TABLE"
    noun = "an Iceberg table"

    metadata_location: str
    snapshot_id: int = -1
    schema_id: int = 0
    spec_id: int = 0
    sort_order_id: int = 0

    @property
    def locations(self) -> tuple[str, ...]:
        return (self.metadata_location,)


class IcebergView(Content, frozen=True, kw_only=True, tag=3):
    """An Iceberg view."""

    content_type = "ICEBERG_VIEW"
    noun = "an Iceberg view"

    metadata_location: str
    version_id: int = 1
    schema_id: int = 0
    sql_text: str = ""
    dialect: str = ""

    @property
    def locations(self) -> tuple[str, ...]:
        return (self.metadata_location,)


class Udf(Content, frozen=True, kw_only=True, tag=5):
    """A user-defined function."""

    content_type = "UDF"
    noun = "a user-defined function"

    metadata_location: str = ""
    version_id: str = ""
    signature_id: str = ""
    sql_text: str = ""
    dialect: str = ""

    @property
    def locations(self) -> tuple[str, ...]:
        return (self.metadata_location,) if self.metadata_location else ()


class DeltaTable(ManagedTable, frozen=True, kw_only=True, tag=2):
    """A Delta table. The three histories are what Nessie's clients keep for one that they manage."""

    content_type = "DELTA_LAKE_TABLE"
    noun = "a Delta table"

    metadata_location_history: tuple[str, ...] = ()
    checkpoint_location_history: tuple[str, ...] = ()
    last_checkpoint: str = ""

    @property
    def is_managed(self) -> bool:
        """Whether the lake decides its commits. If not, it only points at the table."""
        return self.state != b""

    @property
    def locations(self) -> tuple[str, ...]:
        return (*super().locations, *self.metadata_location_history, *self.checkpoint_location_history)


def list_content_types() -> tuple[type[Content], ...]:
    return (IcebergTable, IcebergView, Udf, DeltaTable)


def make_table_pointer(location: str, version: int = -1) -> Content:
    """A small content that names a table and a version of it, and nothing that a format decides."""
    return IcebergTable(metadata_location=location, snapshot_id=version)
