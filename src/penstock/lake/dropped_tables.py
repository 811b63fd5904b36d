"""The tables that the default branch had, and has not any more."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from penstock.kernel.lake_state import find_prefix_end
from penstock.kernel.ledger import LEDGER, read_ledger_entry
from penstock.kernel.objects import read_content
from penstock.model.content import AnyContent, ManagedTable, decode_content
from penstock.model.encoding import NO_COMMIT, ObjectId
from penstock.model.keys import Key

if TYPE_CHECKING:
    from penstock.lake.embedded import Embedded


def list_dropped_tables(lake: Embedded) -> Iterator[tuple[Key, ManagedTable]]:
    """Each table as it was when it was dropped, with the key that it had then."""
    kernel = lake.kernel
    head = kernel.references.get_reference(kernel.formats.default_branch).head
    if head == NO_COMMIT:
        return
    look = partial(_read_content, lake, head)
    for _, value in kernel.read_state(head).scan_entries(LEDGER, find_prefix_end(LEDGER)):
        content = read_content(kernel.objects, value)
        entry = None if content is None or content.id is None else read_ledger_entry(look, content.id)
        if entry is None or entry.dropped is None:
            continue
        dropped = decode_content(entry.dropped)
        if isinstance(dropped, ManagedTable):
            yield Key.decode(entry.key), dropped


def _read_content(lake: Embedded, commit: ObjectId, stored: bytes) -> AnyContent | None:
    return read_content(lake.kernel.objects, lake.kernel.read_state(commit).get(stored))
