"""A caller: who asks, and what the grants of their token allow."""

from __future__ import annotations

import re
from collections.abc import Callable
from fnmatch import fnmatchcase
from itertools import islice, takewhile
from os.path import commonprefix
from typing import Final

import msgspec

from penstock.errors import Denied
from penstock.model.keys import ELEMENTS_MAX, Key
from penstock.model.tokens import EVERYTHING, Grant, Role
from penstock.model.transactions import is_transaction_branch_name

_VERBS: Final = {
    Role.READ: "read",
    Role.WRITE: "change",
    Role.RESTORE: "restore",
    Role.ERASE: "erase rows of",
    Role.MAINTAIN: "maintain",
    Role.BACKUP: "back up",
    Role.MOVE: "move",
    Role.ADMIN: "administer",
}

GRANTS_TOLD: Final = 5
"""How many grants an error names."""


class GrantedKeys(msgspec.Struct, frozen=True):
    """The keys that grants are for: those that match one of the patterns."""

    patterns: frozenset[str] = frozenset()

    @property
    def are_all(self) -> bool:
        return EVERYTHING in self.patterns

    @property
    def namespace(self) -> Key | None:
        """The key at or below which all of them are, as far as the patterns tell; ``None`` if anywhere."""
        literal = [takewhile(_is_literal, pattern.split(".")) for pattern in self.patterns]
        common = takewhile(lambda at: len(set(at)) == 1, zip(*literal, strict=False))
        elements = [element for element, *_ in islice(common, ELEMENTS_MAX)]
        return Key(*elements) if elements else None

    def covers_key(self, key: Key) -> bool:
        """Whether a key is among them. ``sales.*`` is for ``sales`` too: who works there may create it."""
        if self.are_all:
            return True
        text = str(key)
        return any(
            fnmatchcase(text, pattern) or (pattern.endswith(".*") and fnmatchcase(text, pattern[:-2]))
            for pattern in self.patterns
        )

    def cover_everything_below(self, key: Key) -> bool:
        """Whether a key and everything that is, or may be, below it is among them."""
        return self.covers_key(key) and any(
            pattern.endswith("*") and fnmatchcase(f"{key}.", pattern) for pattern in self.patterns
        )

    def contain_all(self, others: GrantedKeys) -> bool:
        """Whether all of the others are surely among them. Patterns are compared as they are written."""
        return self.are_all or others.patterns <= self.patterns


def _is_literal(element: str) -> bool:
    return bool(element) and not set(element) & set('*?["')


ALL_KEYS: Final = GrantedKeys(frozenset((EVERYTHING,)))


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """The caller of a request: a token, or anyone where no token is needed."""

    name: str = ""
    """Of the token; what is written says so. Empty without one: then it says what the client says."""
    grants: tuple[Grant, ...]
    any_location: bool = False
    """Whether tables may be anywhere, not only below the lake's roots."""
    inside: dict[str, str] = {}
    """The branches of transactions that this request may use, with the branches whose grants count there."""

    def __str__(self) -> str:
        return f"token '{self.name}'" if self.name else "you"

    @property
    def is_admin(self) -> bool:
        return any(grant.role is Role.ADMIN for grant in self.grants)

    @property
    def readable_prefix(self) -> str:
        """What the names of all references begin with that the caller may read, as far as grants tell."""
        begins = [re.split(r"[*?[]", grant.references, maxsplit=1)[0] for grant in self.grants]
        return commonprefix(begins)  # noqa: RUF071 - characters are what is compared

    def find_granted_keys(self, role: Role, reference: str) -> GrantedKeys:
        """The keys for which the caller has a role on a reference: on a transaction's branch, if it is
        theirs, those of the branch that it lands on."""
        reference = self.inside.get(reference, reference)
        if is_transaction_branch_name(reference):
            return GrantedKeys()
        return self._find_allowed_keys(role, lambda grant: fnmatchcase(reference, grant.references))

    def find_keys_granted_everywhere(self, role: Role) -> GrantedKeys:
        """The keys for which the caller has a role on every reference there is, or will be."""
        return self._find_allowed_keys(role, lambda grant: grant.references == EVERYTHING)

    def _find_allowed_keys(self, role: Role, matches: Callable[[Grant], bool]) -> GrantedKeys:
        patterns = (grant.keys for grant in self.grants if grant.role.includes_role(role) and matches(grant))
        return GrantedKeys(frozenset(patterns))

    def require_role(self, role: Role, reference: str) -> GrantedKeys:
        """The keys for which the caller has a role on a reference; ``Denied`` if there are none.

        The check comes before the lookup, so that a refusal does not reveal whether the reference exists.
        """
        keys = self.find_granted_keys(role, reference)
        if not keys.patterns:
            raise self.denied_error(f"{_VERBS[role]} '{reference}'", name=reference)
        return keys

    def require_all_keys(self, role: Role, reference: str) -> None:
        """``Denied`` if the caller has a role on a reference for some of its keys only, or not at all."""
        if not self.require_role(role, reference).are_all:
            what = f"{_VERBS[role]} '{reference}' as a whole: that needs a grant for all keys"
            raise self.denied_error(what, name=reference)

    def require_key(self, keys: GrantedKeys, role: Role, key: Key) -> None:
        """``Denied`` if a key is not among those that the caller has a role for."""
        if not keys.covers_key(key):
            raise self.denied_error(f"{_VERBS[role]} '{key}' there", key=str(key))

    def require_lake(self, role: Role) -> None:
        """``Denied`` if the caller has not a role for the whole lake."""
        if not self.find_keys_granted_everywhere(role).are_all:
            raise self.denied_error(f"{_VERBS[role]} the lake: that needs the grant '{role}'")

    def require_table(self, role: Role, key: Key) -> None:
        """``Denied`` if the caller has not a role for a table on all references."""
        if not self.find_keys_granted_everywhere(role).covers_key(key):
            raise self.denied_error(f"{_VERBS[role]} '{key}': that needs the grant '{role}'", key=str(key))

    def require_admin(self) -> None:
        self.require_lake(Role.ADMIN)

    def denied_error(self, subject: str, **details: str) -> Denied:
        granted = ", ".join(str(grant) for grant in self.grants[:GRANTS_TOLD])
        more = " and others" if len(self.grants) > GRANTS_TOLD else ""
        return Denied(
            f"{self} may not {subject} (granted: {granted or 'nothing'}{more})", may_not=subject, **details
        )
