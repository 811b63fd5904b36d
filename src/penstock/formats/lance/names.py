"""Names of a table's files: where Lance expects manifests, and where they are before they count.

A *chain* is a folder in which versions follow one another, as Lance's clients list them. The default branch
of the lake has the table's own folder for one. Every other branch that writes to the table has a chain of its
own, a *line*, below ``_penstock/``, where other programs do not look. Lance's own branches are chains inside
a chain, below ``tree/``.
"""

from __future__ import annotations

import re
from typing import Final

from penstock.errors import InvalidRequest
from penstock.model.encoding import ObjectId, hash_parts

LINES: Final = "_penstock/"
OWNER: Final = f"{LINES}owner.json"
"""The file that names the lake which decides the table's versions."""
USAGE: Final = (
    "a Lance table: use to_lance() or lake.lance(), and format='lance' in penstock.spark's read and write"
)
"""What is said of a table to who takes it for one of another format."""
STAGING: Final = "_staging/"
MERGE: Final = "merge"
"""How the names begin under which merges stage manifests, below that."""
REVERT: Final = "revert"
"""Part of the names under which versions are staged that may have rows of earlier: by a revert or restore."""
VERSIONS: Final = "_versions/"
TRANSACTIONS: Final = "_transactions/"
REFS_OF_BRANCHES: Final = "_refs/branches/"
REFS_OF_TAGS: Final = "_refs/tags/"
MANIFEST: Final = ".manifest"
VERSION_MAX: Final = 2**63 - 1
"""Above are versions that belong to no chain: Lance calls them detached."""
MAIN: Final = ""
"""How Lance's own main branch is written here."""
PINS: Final = "penstock-"
"""How tags begin that the lake itself has put into a line, and that are no tags of the table."""
NAME_MAX_CHARS: Final = 200

_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*(?:/[A-Za-z0-9_-][A-Za-z0-9._-]*)*")
_LAST: Final = 2**64 - 1


def make_chain_folder(incarnation: bytes, table: bytes, head: bytes, turn: int = 0) -> str:
    """The chain of a branch that begins to write to a table, as it is then: the same for all its writers.

    ``turn`` tells those apart that begin from the same state, one after the other was given up.
    """
    again = b"" if turn == 0 else turn.to_bytes(4, "big")
    return f"{LINES}{hash_parts('lance line', incarnation + table + head + again).hex()[:32]}/"


def make_branch_folder(chain: str, branch: str) -> str:
    """The folder of one of Lance's own branches in a chain, with a slash at its end unless it is empty."""
    return f"{chain}tree/{branch}/" if branch else chain


def make_manifest_path(chain: str, branch: str, version: int, *, is_v1: bool = False) -> str:
    """Describe a version once everybody may see it: Lance lists newer ones first."""
    number = str(version) if is_v1 else f"{_LAST - version:020d}"
    return f"{make_branch_folder(chain, branch)}{VERSIONS}{number}{MANIFEST}"


def make_detached_path(chain: str, branch: str, version: int) -> str:
    """Where a version is that belongs to no chain. Its number has the highest bit set."""
    return f"{make_branch_folder(chain, branch)}{VERSIONS}d{version % 2**64}{MANIFEST}"


def make_staged_path(chain: str, branch: str, attempt: str, version: int) -> str:
    """Describe a version while only those may see it who are told. No other attempt has it."""
    return f"{make_branch_folder(chain, branch)}{STAGING}{attempt}/{_LAST - version:020d}{MANIFEST}"


def is_revert(staged: str) -> bool:
    """Whether a manifest was staged by a revert, as its name tells."""
    return f"-{REVERT}-" in staged.rpartition(STAGING)[2]


def check_ref_name(name: str, subject: str) -> str:
    """A name that one of Lance's own branches or tags can have; ``InvalidRequest`` otherwise."""
    if len(name) > NAME_MAX_CHARS:
        raise InvalidRequest(
            f"'{name[:20]}…' has {len(name)} characters; the name of a {subject} can have at most "
            f"{NAME_MAX_CHARS}",
            name=name[:NAME_MAX_CHARS],
        )
    if not _NAME.fullmatch(name) or ".." in name or name.endswith(".lock"):
        raise InvalidRequest(
            f"{name!r} is not a valid name of a {subject}: use letters, digits, '.', '-' and '_', and '/' "
            "between parts",
            name=name[:NAME_MAX_CHARS],
        )
    if name == "main":
        raise InvalidRequest(f"'main' is reserved by Lance, and cannot be the name of a {subject}", name=name)
    if subject == "tag" and name.startswith(PINS):
        raise InvalidRequest(
            f"{name!r} cannot be the name of a tag: names that begin with '{PINS}' are reserved for the lake",
            name=name,
        )
    return name


def lance_branch_name(branch: str | None) -> str:
    """One of Lance's own branches as it is written here: its main one has no name."""
    return MAIN if branch in (None, "", "main") else str(branch)


def make_head_id(staged: str, sha256: bytes, version: int) -> ObjectId:
    """By which a version is told from every other one."""
    return hash_parts("lance version", f"{version} {staged} {sha256.hex()}".encode())
