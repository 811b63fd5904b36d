"""Every format of Penstock passes the contract of formats."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from penstock.formats.delta.lake.erase import DeltaErasure
from penstock.formats.lance.lake.table_rewrite import TableRewrite
from penstock.lake.lake import Lake
from penstock.storage.places import Place
from penstock.testing import FormatContract
from penstock.testing.format_contract import ERASED, FINISH_MAX_S, KEY
from tests.erase.tables import people, where_is
from tests.erase.test_erase_delta import delete_by_vector


class TestDelta(FormatContract):
    name = "delta"
    row_format = "delta"
    further_erase_steps: ClassVar = {
        "files are deleted": (Place, "delete"),
        "a version is committed": (DeltaErasure, "_commit_nothing"),
    }

    def prepare_erase(self, lake: Lake) -> None:
        """A row that is deleted by a vector in a file of its own."""
        lake.branch().drop(KEY)
        lake.create_table(KEY, data=people(), properties={"delta.enableDeletionVectors": "true"})
        delete_by_vector(lake.table(KEY), "file")
        lake.finish_background(FINISH_MAX_S)

    def find_text(self, path: Path, text: str) -> list[str]:
        return where_is(path, text)

    def read_published(self, lake: Lake, path: Path) -> list[str] | None:
        import deltalake

        table = deltalake.DeltaTable(lake.table(KEY).location)
        return sorted(table.to_pyarrow_table()["name"].to_pylist())


class TestFiles(FormatContract):
    name = "files"
    row_format = "parquet"

    def find_text(self, path: Path, text: str) -> list[str]:
        return where_is(path, text)


class TestLance(FormatContract):
    name = "lance"
    row_format = "lance"
    is_slow = True
    further_erase_steps: ClassVar = {
        "fragments are written anew": (TableRewrite, "compact_fragments"),
        "an index is made anew": (TableRewrite, "create_index"),
    }

    def prepare_erase(self, lake: Lake) -> None:
        """A row that Lance marks as deleted, and an index that has it."""
        import lance

        self.write(lake, KEY, ERASED)
        table = lance.dataset(namespace_client=lake.lance("main"), table_id=[KEY])
        table.create_scalar_index("name", "BTREE")
        table.delete(f"name = '{ERASED}'")
        lake.finish_background(FINISH_MAX_S)

    def find_text(self, path: Path, text: str) -> list[str]:
        return where_is(path, text)

    def read_published(self, lake: Lake, path: Path) -> list[str] | None:
        import lance

        return sorted(lance.dataset(lake.table(KEY).location).to_table()["name"].to_pylist())
