"""What tests of Penstock, and of adapters and formats for it, are made of.

- ``StoreContract``: every promise of the store port; an adapter's test adds one fixture.
- ``FormatContract``: what every table format promises; a format's test says how rows are written.
- ``CountingStore``, ``FaultyStore``: stores that count what is asked of them, and that fail on purpose.
- ``HistoryChecker``, ``Recorder``: what many clients did, checked against what the lake says happened.
- ``JournalFormat``: a table format small enough to see through.
- ``BROKEN``: kernels and stores broken on purpose, to test the checkers themselves.

The contracts need pytest; nothing else here does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.testing.broken import BROKEN
    from penstock.testing.counting_store import CountingStore, Counts
    from penstock.testing.faults import FaultyStore, Gate, Point
    from penstock.testing.format_contract import FormatContract
    from penstock.testing.history import HistoryChecker
    from penstock.testing.journal import JournalFormat
    from penstock.testing.recorder import Recorder
    from penstock.testing.store_contract import StoreContract
    from penstock.testing.violations import Violation

_HOMES = {
    "BROKEN": "penstock.testing.broken",
    "CountingStore": "penstock.testing.counting_store",
    "Counts": "penstock.testing.counting_store",
    "FaultyStore": "penstock.testing.faults",
    "FormatContract": "penstock.testing.format_contract",
    "Gate": "penstock.testing.faults",
    "HistoryChecker": "penstock.testing.history",
    "JournalFormat": "penstock.testing.journal",
    "Point": "penstock.testing.faults",
    "Recorder": "penstock.testing.recorder",
    "StoreContract": "penstock.testing.store_contract",
    "Violation": "penstock.testing.violations",
}

_CONTRACTS = {
    "StoreContract": ("store_contract", "contract_objects", "contract_rows", "contract_races"),
    "FormatContract": ("format_contract",),
}

__all__ = [
    "BROKEN",
    "CountingStore",
    "Counts",
    "FaultyStore",
    "FormatContract",
    "Gate",
    "HistoryChecker",
    "JournalFormat",
    "Point",
    "Recorder",
    "StoreContract",
    "Violation",
]


def __getattr__(name: str) -> Any:
    """Load what is asked for when it is asked for: only contracts need pytest."""
    if name not in _HOMES:
        raise AttributeError(f"module 'penstock.testing' has no attribute {name!r}")
    from importlib import import_module

    if name in _CONTRACTS:
        _explain_assertions(_CONTRACTS[name])
    member = getattr(import_module(_HOMES[name]), name)
    globals()[name] = member
    return member


def _explain_assertions(parts: Sequence[str]) -> None:
    """Have pytest show what an assertion of a contract compared, as it does for an adapter's own tests."""
    import sys

    import pytest

    names = [f"penstock.testing.{part}" for part in parts]
    pytest.register_assert_rewrite(*(name for name in names if name not in sys.modules))


def __dir__() -> list[str]:
    return sorted(__all__)
