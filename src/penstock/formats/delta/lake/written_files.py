"""Data files that a writer has put into a table's folder, and that no commit names yet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError
from penstock.formats.delta.protocol.actions import Add, Cdc, Remove, decode_path
from penstock.formats.delta.rows.vectors import get_vector_file_name
from penstock.lake.job_files import is_refusal, remove_files

if TYPE_CHECKING:
    from penstock.storage.places import Place


@contextmanager
def remove_files_if_refused(place: Place, actions: Iterable[Any]) -> Iterator[None]:
    """If a commit of actions is refused in here, their files are removed: nobody else can name them."""
    try:
        yield
    except PenstockError as error:
        if is_refusal(error):
            remove_files(place, list_added_names(actions))
        raise


def list_added_names(actions: Iterable[Any]) -> list[str]:
    """The files that actions would make part of a table, below its root."""
    listed = list(actions)
    replaced = {action.key.path for action in listed if isinstance(action, Remove)}
    names = []
    for action in listed:
        if not isinstance(action, Add | Cdc):
            continue
        # A file that is there already, with other rows deleted than before: only its vector is new.
        if isinstance(action, Add) and action.key.path in replaced:
            vector = action.deletion_vector
            names += (
                [get_vector_file_name(vector)] if vector is not None and vector.storage_type == "u" else []
            )
        else:
            names.append(decode_path(action.path))
    return list(dict.fromkeys(names))
