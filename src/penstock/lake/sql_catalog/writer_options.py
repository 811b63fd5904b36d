"""Options of Spark's writers: what ``df.write.option(…)`` and ``df.writeTo(…).option(…)`` say of a write."""

from __future__ import annotations

from typing import Final

import msgspec

from penstock.errors import InvalidRequest
from penstock.lake.sql_catalog.requests import CatalogRequest
from penstock.lake.write_jobs import SaveMode

_REPLACE_WHERE: Final = "replacewhere"
_PARTITIONS: Final = "partitionoverwritemode"
_MERGE_SCHEMA: Final = "mergeschema"
_OVERWRITE_SCHEMA: Final = "overwriteschema"
_APPLICATION: Final = "txnappid"
_BATCH: Final = "txnversion"
_KNOWN: Final = frozenset(
    {_REPLACE_WHERE, _PARTITIONS, _MERGE_SCHEMA, _OVERWRITE_SCHEMA, _APPLICATION, _BATCH}
)
_SPARKS_OWN: Final = frozenset({"path", "provider", "checkpointlocation", "queryname"})
"""What Spark adds by itself, and what has a place of its own in a request."""


class WriterOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the options of a write say. Their names are those of Delta's writer, in any letters."""

    replace_where: str | None = None
    """Overwrite only rows for which this condition is true."""
    partition_overwrite: str | None = None
    """``dynamic`` or ``static``, if it is said."""
    merge_schema: bool = False
    app_id: str | None = None
    batch: int | None = None
    others: dict[str, str] = {}
    """For the writer of the files."""

    @property
    def is_dynamic(self) -> bool:
        return self.partition_overwrite == "dynamic"

    @property
    def is_partial(self) -> bool:
        """Whether an overwrite is to leave rows in the table."""
        return self.replace_where is not None or self.is_dynamic

    @property
    def beside_replacing(self) -> tuple[str, ...]:
        """The options that say anything else than what an overwrite replaces."""
        settings = {"mergeSchema": self.merge_schema, "txnAppId": self.app_id, "txnVersion": self.batch}
        return (*(name for name, value in settings.items() if value), *self.others)

    @classmethod
    def parse_options(cls, request: CatalogRequest) -> WriterOptions:
        """The options of a request. ``InvalidRequest`` for values that they cannot have."""
        options = {name.lower(): value for name, value in request.options.items()}
        condition, mode = options.get(_REPLACE_WHERE), options.get(_PARTITIONS, "").lower()
        if condition is not None and request.mode != SaveMode.OVERWRITE.value:
            raise InvalidRequest("the option 'replaceWhere' needs mode 'overwrite'")
        if mode not in ("", "dynamic", "static"):
            raise InvalidRequest(f"'partitionOverwriteMode' must be 'dynamic' or 'static', got {mode!r}")
        number = options.get(_BATCH)
        if number is not None and not (number.isascii() and number.isdigit()):
            raise InvalidRequest(f"'txnVersion' must be a whole number, got {number!r}")
        if (number is None) != (_APPLICATION not in options):
            raise InvalidRequest("'txnAppId' and 'txnVersion' belong together: give both")
        others = {
            name: value for name, value in request.options.items() if name.lower() not in _KNOWN | _SPARKS_OWN
        }
        return cls(
            replace_where=condition,
            partition_overwrite=(mode or None) if request.mode == SaveMode.OVERWRITE.value else None,
            merge_schema=options.get(_MERGE_SCHEMA, "").lower() == "true",
            app_id=options.get(_APPLICATION),
            batch=None if number is None else int(number),
            others=others,
        )
