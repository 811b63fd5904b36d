"""A Lance table as it travels to tasks: what the driver saw, so that nobody has to look for it again.

Lance's own pickled tables name their indices by where the manifest is once everybody may see it. A version
that only a transaction sees is not there, and tasks need no indices: they travel without.
"""

from __future__ import annotations

import pickle
from typing import Any, Final

from penstock.formats.lance.wire import Message

_INDICES: Final = 6
"""The field of a manifest that says where in its file the indices are."""
_TRANSACTION: Final = 21
"""The same, of the transaction that made the version."""


def travelling(opened: Any) -> bytes:
    """A table as it was opened, pickled."""
    import lance

    uri, storage_options, version, manifest, *_ = opened.__getstate__()
    plain = Message.read(manifest).having(_INDICES).having(_TRANSACTION)
    found = lance.LanceDataset(
        uri, version, storage_options=storage_options, serialized_manifest=plain.pack()
    )
    return pickle.dumps(found)
