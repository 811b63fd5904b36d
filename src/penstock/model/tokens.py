"""Tokens: who may use a server, and for what.

A token is written ``penstock_<id>_<secret>``. Whoever makes it keeps the secret; the lake keeps its hash.
"""

from __future__ import annotations

import re
from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

from penstock.errors import InvalidRequest
from penstock.model.commits import AUTHOR_MAX_CHARS
from penstock.model.encoding import ObjectId, encode, make_decoder
from penstock.model.keys import LENGTH_MAX_CHARS

EVERYTHING: Final = "*"
"""The one pattern that stands for all references, or all keys."""

PATTERN_MAX_CHARS: Final = LENGTH_MAX_CHARS
GRANTS_MAX: Final = 100
HASH_BYTES: Final = 32

_ID = re.compile(r"[0-9a-f]{12}")


class Role(StrEnum):
    """What a grant allows. ``write`` includes ``read``, ``admin`` includes all others; nothing else does."""

    READ = "read"
    WRITE = "write"
    """Commit, merge, create, assign and delete references."""
    RESTORE = "restore"
    """Set tables to an earlier state."""
    ERASE = "erase"
    """Make deleted rows unrecoverable."""
    MAINTAIN = "maintain"
    """Sweep, check, publish, clean up logs, resync tables whose logs are ahead of the lake."""
    BACKUP = "backup"
    """Make, list, expire and forget backups."""
    MOVE = "move"
    """Move the lake to another place, and undo that."""
    ADMIN = "admin"
    """All of it, and tokens, roots, history rules."""

    def includes_role(self, other: Role) -> bool:
        """Whether who has this role may do what the other one allows."""
        return self in (other, Role.ADMIN) or (self, other) == (Role.WRITE, Role.READ)


FIRST_ROLES: Final = frozenset({Role.READ, Role.WRITE, Role.ADMIN})
"""Those that the first release knows."""
WHOLE_LAKE_ROLES: Final = frozenset({Role.BACKUP, Role.MOVE, Role.ADMIN})
"""Those that are about all references and all keys."""
ALL_REFERENCES_ROLES: Final = frozenset({Role.ERASE, Role.MAINTAIN})
"""Those that are about the files of tables, which references share; they may be for some keys only."""


class Grant(msgspec.Struct, frozen=True):
    """A role, for references and keys whose names match the patterns.

    Patterns have ``*`` (any text), ``?`` (any character) and ``[abc]`` in them; upper and lower case differ.
    A pattern of keys that ends with ``.*`` stands for the namespace before it as well.
    """

    role: Role
    references: str = EVERYTHING
    keys: str = EVERYTHING

    def __str__(self) -> str:
        """As people write it: ``write:dev/*:sales.*``."""
        if self.keys != EVERYTHING:
            return f"{self.role}:{self.references}:{self.keys}"
        return f"{self.role}:{self.references}" if self.references != EVERYTHING else str(self.role)

    def check(self) -> Grant:
        """Return ``self`` if it can be granted."""
        for what, pattern in (("references", self.references), ("keys", self.keys)):
            if not pattern.isprintable() or not 0 < len(pattern) <= PATTERN_MAX_CHARS:
                raise InvalidRequest(f"{pattern[:40]!a} is not a pattern of {what}")
        if self.role in WHOLE_LAKE_ROLES and (self.references, self.keys) != (EVERYTHING, EVERYTHING):
            raise InvalidRequest(
                f"'{self}': '{self.role}' applies to the whole lake; grant only '{self.role}'"
            )
        if self.role in ALL_REFERENCES_ROLES and self.references != EVERYTHING:
            raise InvalidRequest(
                f"'{self}': '{self.role}' applies to files, which all references share; grant "
                f"'{msgspec.structs.replace(self, references=EVERYTHING)}'"
            )
        return self


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """A token as the lake knows it."""

    id: str
    """12 hexadecimal digits; the token itself contains them."""
    name: str
    """The name of its user, which commits record as their author."""
    secret_hash: ObjectId
    """SHA-256 of the secret."""
    grants: tuple[Grant, ...]
    """What it allows."""
    created: datetime
    expires: datetime | None = None
    """When it expires."""

    def check(self) -> Token:
        """Return ``self`` if a lake can keep it."""
        if not _ID.fullmatch(self.id):
            raise InvalidRequest(
                f"the id of a token must have 12 lower-case hexadecimal digits, got {self.id[:40]!a}"
            )
        if not self.name.strip() or not self.name.isprintable() or len(self.name) > AUTHOR_MAX_CHARS:
            raise InvalidRequest(
                f"the name of a token must have 1 to {AUTHOR_MAX_CHARS} printable characters"
            )
        if len(self.secret_hash) != HASH_BYTES:
            raise InvalidRequest(f"the hash of a token's secret must have {HASH_BYTES} bytes")
        if not 0 < len(self.grants) <= GRANTS_MAX:
            raise InvalidRequest(
                f"a token must have 1 to {GRANTS_MAX} grants, such as 'read' or 'write:dev/*'"
            )
        if self.expires is not None and self.expires.tzinfo is None:
            raise InvalidRequest("the expiry time of a token needs a time zone")
        for grant in self.grants:
            grant.check()
        return self


encode_token = encode
decode_token = make_decoder(Token).decode
