"""Which files a table may lead to: those below its root, and no others.

What a lake may read is said by its roots, and not by a log.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from penstock.formats.delta.errors import UnsupportedFeature
from penstock.formats.delta.protocol.actions import decode_path

_ABSOLUTE: Final = re.compile(r"/|[A-Za-z][A-Za-z0-9+.\-]*:/")


def name_inside(path: str, roots: Sequence[str]) -> str:
    """The name below a table's root of a file of its log, decoded.

    ``roots`` are all locations that the table has or had, such as ``Place.roots``. ``UnsupportedFeature`` if
    the file lies elsewhere: a shallow clone has such files.
    """
    return check_inside(decode_path(path), roots)


def check_inside(path: str, roots: Sequence[str]) -> str:
    """The same for a path that is decoded already."""
    name = path
    if _ABSOLUTE.match(name):
        name = next(filter(None, (_below(name, root) for root in roots)), "")
    if not name or ".." in name.split("/"):
        raise UnsupportedFeature(
            f"{roots[0]} has the file {path!r}, which is outside the table\n  Penstock does not read "
            "shallow clones; make a full copy of the table (CREATE TABLE … AS SELECT).",
            table=roots[0],
            feature="absolute paths",
        )
    return name


def _below(address: str, root: str) -> str:
    """The part of an absolute address below a root; empty if it lies elsewhere."""
    for other in ("s3a://", "s3n://"):
        if address.startswith(other):
            address = "s3://" + address.removeprefix(other)
    return address.removeprefix(f"{root}/") if address.startswith(f"{root}/") else ""
