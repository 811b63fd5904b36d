"""Lakes with a place for tables: those of the tests of files."""

from __future__ import annotations

from tests.files.conftest import far, lake, own, server, switch

__all__ = ["far", "lake", "own", "server", "switch"]
