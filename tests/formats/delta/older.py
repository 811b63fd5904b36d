"""Tables as Penstock 0.1 created them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import msgspec

from penstock.formats.delta.branch_log import ownership
from penstock.formats.delta.protocol import features
from penstock.formats.delta.protocol.feature_table import FEATURES


@contextmanager
def as_the_first_release() -> Iterator[None]:
    """Within it, NOT NULL columns enable nothing, and no feature is listed that is not enabled."""
    invariants = msgspec.structs.replace(FEATURES["invariants"], column=None)
    with patch.dict(FEATURES, invariants=invariants), patch.object(ownership, "BASIC", frozenset()):
        features._find_features_in_columns.cache_clear()
        yield
    features._find_features_in_columns.cache_clear()
