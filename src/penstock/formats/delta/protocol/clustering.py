"""The columns that a table is clustered by, which engines that cluster its files keep to.

They stand in the domain ``delta.clustering``, by their names in files. Whoever adds a file to such a table
notes statistics of these columns; whether the file itself is clustered is nobody's duty. The columns are
chosen when a table is created. Others would need statistics in all files that are there, so a lake does not
change them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from penstock.errors import InvalidRequest
from penstock.formats.delta.protocol.actions import Add, DomainMetadata
from penstock.formats.rows.schema import Field, StructType, Type

CLUSTERING: Final = "clustering"
"""The feature."""
DOMAIN: Final = "delta.clustering"
COLUMNS_MAX: Final = 4
"""By how many columns other engines cluster a table at most."""

Path: TypeAlias = tuple[str, ...]

_WITHOUT_ORDER: Final = frozenset({"boolean", "binary", "variant", "void"})


def clustering_columns(domains: Mapping[str, DomainMetadata]) -> tuple[Path, ...]:
    """The columns that a table is clustered by, as files call them; none if it says nothing of the kind."""
    domain_metadata = domains.get(DOMAIN)
    return (
        ()
        if domain_metadata is None or domain_metadata.removed
        else parse_clustering(domain_metadata.configuration)
    )


def parse_clustering(configuration: str) -> tuple[Path, ...]:
    """The columns that the domain names: each as a path, or as its name alone. None if it cannot be read."""
    try:
        parsed: Any = msgspec.json.decode(configuration)
        columns = parsed["clusteringColumns"]
        return tuple((column,) if isinstance(column, str) else tuple(map(str, column)) for column in columns)
    except (msgspec.MsgspecError, RecursionError, KeyError, TypeError):
        return ()


def make_clustering_domain(paths: Sequence[Path]) -> DomainMetadata:
    """The action by which a table is clustered by some columns."""
    encoded = msgspec.json.encode({"clusteringColumns": paths, "domainName": DOMAIN}).decode()
    return DomainMetadata(domain=DOMAIN, configuration=encoded)


def find_columns(schema: StructType, names: Sequence[str]) -> tuple[tuple[Field, ...], ...]:
    """The fields from the schema down to each column that a table is to be clustered by.

    ``InvalidRequest`` for names that no table is clustered by: parts of structs are ``address.city``.
    """
    if len(names) > COLUMNS_MAX:
        raise InvalidRequest(f"a table can be clustered by at most {COLUMNS_MAX} columns, got {len(names)}")
    columns = tuple(_find_fields(schema, name) for name in names)
    if len({tuple(field.name for field in fields) for fields in columns}) < len(columns):
        raise InvalidRequest("a clustering column is given twice")
    return columns


def _find_fields(schema: StructType, name: str) -> tuple[Field, ...]:
    fields: list[Field] = []
    inside: Type = schema
    for step in name.split("."):
        field = inside.field(step) if isinstance(inside, StructType) else None
        if field is None:
            raise InvalidRequest(
                f"a table cannot be clustered by '{name}': it has no such column", column=name
            )
        fields.append(field)
        inside = field.type
    if not isinstance(inside, str) or inside in _WITHOUT_ORDER:
        raise InvalidRequest(
            f"a table cannot be clustered by '{name}': it has a type without minimum and maximum values",
            column=name,
        )
    return tuple(fields)


def find_columns_without_statistics(add: Add, columns: Sequence[Path]) -> Iterator[Path]:
    """Those of the clustering columns of which a file notes no statistics."""
    try:
        stats: Any = msgspec.json.decode(add.stats or "{}")
        counts = stats.get("nullCount")
    except (msgspec.MsgspecError, RecursionError, AttributeError):
        counts = None
    for path in columns:
        column_counts = counts
        for step in path:
            column_counts = column_counts.get(step) if isinstance(column_counts, dict) else None
        if not isinstance(column_counts, int):
            yield path
