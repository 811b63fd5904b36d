"""The versions in which rows say they were created and last updated, renumbered for another chain.

A table whose rows have numbers of their own keeps, for every fragment, in which version each row came and in
which it was last changed. What comes from another chain as one version came in that one here.
"""

from __future__ import annotations

from typing import Final

from penstock.formats.lance.manifests import Manifest, ManifestFlag
from penstock.formats.lance.protobuf import ProtobufMessage
from penstock.formats.lance.relocation import FILES

_CHANGED: Final = 7
_MADE: Final = 9
_RUNS: Final = 1
_VERSION: Final = 2


def renumber_row_versions(manifest: Manifest, before: Manifest | None, parted: int) -> Manifest:
    """A manifest of another chain with the ``created at`` and ``updated at`` versions of its rows renumbered
    for this chain.

    It comes after ``before``. ``parted`` is the number, there, of the last version that both have.
    """
    if not manifest.flags & ManifestFlag.STABLE_ROW_IDS:
        return manifest
    newest = 0 if before is None else before.version
    messages = (
        {} if before is None else {_list_file_names(fragment): fragment for fragment in before.fragments}
    )
    fragments = []
    for fragment in manifest.fragments:
        message = messages.get(_list_file_names(fragment))
        for field in (_CHANGED, _MADE):
            values = fragment.get_values(field) if message is None else message.get_values(field)
            if message is None:
                values = [_renumber_row_versions(data, parted, newest) for data in values]
            fragment = fragment.replace_field(field, *values)
        fragments.append(fragment)
    return manifest.replace_parts(fragments=fragments)


def _renumber_row_versions(data: bytes, parted: int, newest: int) -> bytes:
    """What came there after the sides parted comes with the next version here, all else with one before."""
    runs = [ProtobufMessage.decode(data) for data in ProtobufMessage.decode(data).get_values(_RUNS)]
    numbers = [run.get_number(_VERSION) or 0 for run in runs]
    dates = [newest + 1 if number > parted else min(number, newest) for number in numbers]
    packed_runs = [run.replace_field(_VERSION, date).encode() for run, date in zip(runs, dates, strict=True)]
    return ProtobufMessage.decode(data).replace_field(_RUNS, *packed_runs).encode()


def _list_file_names(fragment: ProtobufMessage) -> tuple[str | None, ...]:
    """The names of a fragment's files, which no others have, wherever they lie."""
    return tuple(ProtobufMessage.decode(data).get_text(1) for data in fragment.get_values(FILES))
