"""Rewrites a Lance table with Lance itself: fragments without deleted rows and columns, and all indexes.

Each is a commit like any other. What others change meanwhile is a conflict of Lance's, and it is done again.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import UnsupportedFeature
from penstock.formats.lance.lake.failures import own_errors
from penstock.formats.lance.lake.namespace import PenstockNamespace

if TYPE_CHECKING:
    from lance import LanceDataset

    from penstock.lake.lake import Lake
    from penstock.model.keys import Key

_KINDS: Final = {
    "BTree": "BTREE",
    "Bitmap": "BITMAP",
    "LabelList": "LABEL_LIST",
    "NGram": "NGRAM",
    "ZoneMap": "ZONEMAP",
    "BloomFilter": "BLOOMFILTER",
    "Inverted": "INVERTED",
}
"""How indexes but those of vectors are asked for, by what Lance calls them."""
_OF_TEXT: Final = (
    *("base_tokenizer", "language", "with_position", "max_token_length", "lower_case", "stem"),
    *("remove_stop_words", "custom_stop_words", "ascii_folding", "min_ngram_length", "max_ngram_length"),
    *("prefix_only",),
)
"""What an index of texts says of itself, and is made by."""


class TableRewrite:
    """Writes a table of a branch anew."""

    def __init__(self, lake: Lake, key: Key, branch: str) -> None:
        self._key = key
        self._namespace = PenstockNamespace(lake, branch)

    def compact_fragments(self) -> None:
        """Write fragments anew that have deleted rows, without these."""
        with self._open_dataset() as dataset:
            dataset.optimize.compact_files(
                materialize_deletions=True, materialize_deletions_threshold=0.0, defer_index_remap=False
            )

    def write_rows(self) -> None:
        """Write all rows anew, to new fragments, with the columns that the table has."""
        with self._open_dataset() as dataset:
            name = dataset.schema.names[0]
            dataset.update({name: f"`{name}`"})

    def check_indexes(self, names: Container[str]) -> None:
        """``UnsupportedFeature`` if one of some indexes cannot be made anew as it is."""
        with self._open_dataset() as dataset:
            for index in dataset.describe_indices():
                if index.name in names:
                    self._index_options(dataset, index)

    def create_index(self, name: str) -> None:
        """Make an index anew from the rows that there are now, if it is still there."""
        with self._open_dataset() as dataset:
            for index in dataset.describe_indices():
                if index.name == name:
                    options, (column,) = self._index_options(dataset, index), index.field_names
                    kind: Any = _KINDS.get(index.index_type, index.index_type)
                    create = (
                        dataset.create_scalar_index if index.index_type in _KINDS else dataset.create_index
                    )
                    create(column, kind, name=name, replace=True, **options)

    @contextmanager
    def _open_dataset(self) -> Iterator[LanceDataset]:
        import lance

        with own_errors(self._namespace, self._key) as client:
            yield lance.dataset(namespace_client=client, table_id=[*self._key])

    def _index_options(self, dataset: LanceDataset, index: Any) -> dict[str, Any]:
        """The options by which an index is made again as it is."""
        options: dict[str, Any] | None = None
        if len(index.field_names) == 1:
            if index.index_type == "Inverted":
                options = _text_index_options(index.details)
            elif index.index_type in _KINDS:
                options = {}
            elif index.index_type.startswith("IVF_"):
                options = _vector_index_options(
                    index.details, dataset.stats.index_stats(index.name)["indices"]
                )
        if options is None:
            raise UnsupportedFeature(
                f"the index '{index.name}' of '{self._key}', of type {index.index_type}, cannot be rebuilt "
                "here\n  Drop it, erase the table, and create the index again then.",
                key=str(self._key),
                index=index.name,
            )
        return options


def _text_index_options(settings: Mapping[str, Any]) -> dict[str, Any] | None:
    if (
        settings.get("lance_tokenizer") not in (None, "text")
        or settings.get("document_granularity", "row") != "row"
    ):
        return None
    return {name: settings[name] for name in _OF_TEXT if settings.get(name) is not None}


def _vector_index_options(
    settings: Mapping[str, Any], parts: Sequence[Mapping[str, Any]]
) -> dict[str, Any] | None:
    options: dict[str, Any] = {"metric": str(settings.get("metric_type", "l2")).lower()}
    if not parts:
        return None
    options["num_partitions"] = max(int(part["num_partitions"]) for part in parts)
    for name in ("num_sub_vectors", "num_bits"):
        if (value := settings.get("compression", {}).get(name)) is not None:
            options[name] = value
    graph = settings.get("hnsw", {})
    for name, option in (("max_connections", "m"), ("construction_ef", "ef_construction")):
        if name in graph:
            options[option] = graph[name]
    return options
