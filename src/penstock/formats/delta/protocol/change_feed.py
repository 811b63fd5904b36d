"""The columns that a change data feed has beside the table's."""

from __future__ import annotations

from typing import Final

CHANGE_TYPE: Final = "_change_type"
"""``insert``, ``delete``, ``update_preimage`` or ``update_postimage``. The feed's own files hold it."""
COMMIT_VERSION: Final = "_commit_version"
COMMIT_TIMESTAMP: Final = "_commit_timestamp"
