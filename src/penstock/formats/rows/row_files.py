"""Files of rows on this machine, for commands that take one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.errors import InvalidRequest
from penstock.formats.rows.arrow_types import pa, pq, read_csv


def read_row_file(path: Path) -> Any:
    """The rows of a file, read as they are asked for: Parquet, or CSV with a header."""
    kind = path.suffix.lower()
    try:
        if kind == ".parquet":
            file = pq.ParquetFile(path)
            return pa.RecordBatchReader.from_batches(file.schema_arrow, file.iter_batches())
        if kind == ".csv":
            return read_csv(path)
    except (pa.ArrowException, OSError) as problem:
        raise InvalidRequest(f"{path} cannot be read: {problem}") from None
    raise InvalidRequest(f"{path} is neither .parquet nor .csv; convert it")
