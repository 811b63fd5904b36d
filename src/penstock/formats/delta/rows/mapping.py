"""Column mapping: which column of a data file is which column of the table.

Without mapping it is the name. With it, each column of the schema notes a physical name, which files,
partition values and statistics use, and an id, which the columns of files carry. Readers of a table in the
mode ``id`` go by the id alone, in the mode ``name`` by the physical name alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any, Final

from penstock.formats.delta.errors import InvalidLog
from penstock.formats.delta.protocol.actions import Metadata
from penstock.formats.rows.schema import Field, StructType

MODE: Final = "delta.columnMapping.mode"
ID: Final = "delta.columnMapping.id"
PHYSICAL_NAME: Final = "delta.columnMapping.physicalName"
PARQUET_ID: Final = b"PARQUET:field_id"


class Mapping(StrEnum):
    """How the columns of files are found."""

    NONE = "none"
    NAME = "name"
    ID = "id"

    def physical(self, field: Field) -> str:
        """The name of a column in files, partition values and statistics."""
        if self is Mapping.NONE:
            return field.name
        return str(_noted(field, PHYSICAL_NAME))

    def locate(self, there: Iterable[Any], fields: Sequence[Field]) -> list[int | None]:
        """For each field its place among the Arrow fields of a file, ``None`` for one that is not there."""
        if self is Mapping.ID:
            by_id = {_id_of(one): place for place, one in enumerate(there)}
            return [by_id.get(int(_noted(field, ID))) for field in fields]
        by_name = {one.name: place for place, one in enumerate(there)}
        return [by_name.get(self.physical(field)) for field in fields]

    def match(self, there: Any, kind: StructType, path: str) -> list[int | None]:  # noqa: ARG002
        """The same for the fields of a nested column, as ``arrow_types.reshaped`` asks."""
        return self.locate(there, kind.fields)


def mapping_of(metadata: Metadata) -> Mapping:
    """The mapping of a table. ``InvalidLog`` if it is none that the protocol knows."""
    mode = metadata.configuration.get(MODE, "none").lower()
    try:
        return Mapping(mode)
    except ValueError:
        raise InvalidLog(f"the property {MODE} is {mode!r}, and can be 'none', 'name' or 'id'") from None


def _noted(field: Field, note: str) -> Any:
    found = field.metadata.get(note)
    if found is None:
        raise InvalidLog(f"the column '{field.name}' lacks '{note}', which column mapping needs")
    return found


def _id_of(field: Any) -> int | None:
    found = (field.metadata or {}).get(PARQUET_ID)
    return None if found is None else int(found)
