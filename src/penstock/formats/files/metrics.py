"""What is measured of tables of files."""

from __future__ import annotations

from typing import Final

from penstock.metrics.table import Metric, declare_counter

SWEPT_FILES: Final = declare_counter(
    "penstock_files_swept_files_total", "files", "Files of tables of files that sweeps removed."
)
SWEPT_BYTES: Final = declare_counter("penstock_files_swept_bytes_total", "By", "Bytes of these files.")

METRICS: Final[tuple[Metric, ...]] = (SWEPT_FILES, SWEPT_BYTES)
"""All of them."""
