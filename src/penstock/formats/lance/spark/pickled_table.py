"""A Lance table, pickled for Spark's tasks as the driver opened it, so that no task has to look for it again.

Lance's own pickled tables name their indices by where the manifest is once everybody may see it. A version
that only a transaction sees is not there, and tasks need no indices: they travel without.
"""

from __future__ import annotations

import pickle
from typing import Any

from penstock.formats.lance.manifests import remove_sections


def pickle_table(opened: Any) -> bytes:
    """A table as it was opened, pickled."""
    import lance

    uri, storage_options, version, manifest, *_ = opened.__getstate__()
    lance_dataset = lance.LanceDataset(
        uri, version, storage_options=storage_options, serialized_manifest=remove_sections(manifest)
    )
    return pickle.dumps(lance_dataset)
