"""Revisions: how Nessie's clients name a reference and a commit, and what that comes to in a lake.

In a path it is ``name``, ``name@hash`` or ``@hash``, followed by any number of ``~N``, ``^N`` and ``*time``;
``-`` is the default branch. In a body the name and the rest are apart. Hashes are never abbreviated. Walking
further back than there are commits ends at the empty lake.

Where Nessie reads ``name@hash`` whether or not the hash has to do with the name, Penstock refuses what no
parent leads to from the name: who may read one branch must not read others by way of it. With steps, it is
the commit at their end that must be found there.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from penstock.errors import CommitNotFound, InvalidName, InvalidRequest, ReferenceNotFound
from penstock.lake import calls
from penstock.lake.catalogue import Catalogue
from penstock.model.commits import EMPTY_COMMIT_ID
from penstock.model.names import STEPS_MAX
from penstock.model.references import Kind, Reference
from penstock.server.nessie import json_types

DETACHED: Final = "DETACHED"
"""What stands for a name where a commit has none."""

_NAME: Final = r"[A-Za-z](?:(?:(?![.][.])[A-Za-z0-9./_-])*[A-Za-z0-9_-])?"
_HASH: Final = r"[0-9a-fA-F]{8,64}"
_STEP: Final = (
    r"[~^][0-9]+|\*(?:[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.][0-9]{1,9})?Z|[0-9]+)"
)
_PATH: Final = re.compile(rf"({_NAME}|-)?(?:@({_HASH})?)?((?:{_STEP})*)")
_IN_BODY: Final = re.compile(rf"({_HASH})?((?:{_STEP})*)")
_STEPS: Final = re.compile(_STEP)
_NAME_ONLY: Final = re.compile(_NAME)
_HASH_ONLY: Final = re.compile(_HASH)
_COUNTS: Final = {"~": "N_TH_PREDECESSOR", "^": "N_TH_PARENT"}

NAME_RULE: Final = (
    "Reference name must start with a letter, followed by letters, digits, one of the ./_- characters, "
    "not end with a slash or dot, not contain '..'"
)
HASH_RULE: Final = (
    "Hash with optional relative part must consist of either a valid commit hash (which in turn must consist "
    "of the hex representation of 4-32 bytes), or a valid relative part (which must be either '~' + a number "
    "representing the n-th predecessor of a commit, '^' + a number representing the n-th parent within a "
    "commit, or '*' + a number representing the created timestamp of a commit, in milliseconds since epoch "
    "or in ISO-8601 format), or both."
)
PATH_RULE: Final = (
    f"{NAME_RULE}, optionally followed by @ and a hash with optional relative part. {HASH_RULE}"
)

PATH_PATTERN: Final = r"[^/]+|(?:(?!%40)[^@])+(?:@|%40)[^@/]*"
"""A reference as one part of a raw path: if it contains slashes, an ``@`` tells where it ends."""


class NessieRevision(msgspec.Struct, frozen=True, kw_only=True):
    """A reference and a commit, as a client named them."""

    name: str | None
    """``None`` for a commit without a name."""
    commit: str | None = None
    """Where to start; the reference's head if it is not given."""
    steps: tuple[str, ...] = ()

    @property
    def is_name_only(self) -> bool:
        return self.commit is None and not self.steps


class ResolvedRevision(msgspec.Struct, frozen=True, kw_only=True):
    """What a revision comes to."""

    reference: Reference | None
    """As it is now; ``None`` if the client named a commit only."""
    commit: str

    @property
    def name(self) -> str | None:
        return self.reference.name if self.reference is not None else None

    @property
    def revision(self) -> str:
        """The same for calls, which check that the one leads to the other."""
        return self.commit if self.reference is None else f"{self.reference.name}@{self.commit}"

    @property
    def effective(self) -> json_types.AnyReference:
        """The same for answers."""
        if self.reference is None:
            return json_types.DetachedReference(hash=self.commit)
        return make_nessie_reference(self.reference, self.commit)


def make_nessie_reference(
    reference: Reference, commit: str
) -> json_types.NessieBranch | json_types.NessieTag:
    """A branch or tag at a commit. A transaction's is a branch to whoever can name it."""
    shape = json_types.NessieTag if reference.kind is Kind.TAG else json_types.NessieBranch
    return shape(name=reference.name, hash=commit)


def is_name(text: str) -> bool:
    """Whether a reference can have this name."""
    return _NAME_ONLY.fullmatch(text) is not None


def is_hash(text: str) -> bool:
    """Whether it can be a commit's hash, or the beginning of one."""
    return _HASH_ONLY.fullmatch(text) is not None


def is_path(text: str) -> bool:
    """Whether it is a reference, a commit or both, with any steps from there, as they stand in paths."""
    return _PATH.fullmatch(text) is not None


def is_spec(text: str) -> bool:
    """Whether it is a hash, steps from one commit to another such as ``~2``, or both."""
    return bool(text) and _IN_BODY.fullmatch(text) is not None


def parse_path(text: str, catalogue: Catalogue, parameter: str, rule: str = PATH_RULE) -> NessieRevision:
    """Read a revision from a path; ``parameter`` is what Nessie calls it, and says so if it cannot be."""
    match = _PATH.fullmatch(text)
    if match is None:
        raise InvalidRequest(f"{parameter}: {rule}", field=parameter)
    name, commit, steps = match.groups()
    if name == "-":
        name = catalogue.do(calls.GetAbout()).default_branch
    if name is None and commit is None and not steps:
        raise InvalidRequest(
            "Either name or commit ID with optional relative commit spec or both must be supplied"
        )
    return _make_revision(name, commit, steps)


def parse_body(name: str | None, text: str | None, says: str = "{rule} - but was: {text}") -> NessieRevision:
    """Read a revision whose parts stand apart; ``says`` is what to say if it cannot be one."""
    match = _IN_BODY.fullmatch(text or "")
    if match is None or text == "":
        raise InvalidRequest(says.format(rule=HASH_RULE, text=text))
    return _make_revision(name, *match.groups())


def check_name(name: str) -> str:
    """Return ``name`` if a reference of that name can be created."""
    if not is_name(name) and name != "-":
        raise InvalidRequest(f"createReference.name: {NAME_RULE}", field="name")
    if name.upper() in ("HEAD", DETACHED) or _HASH_ONLY.fullmatch(name):
        raise InvalidRequest(
            "Reference name mut not be HEAD, DETACHED or a potential commit ID representation. "
            f"- but was {name}",
            field="name",
        )
    return name


def find_reference(catalogue: Catalogue, name: str | None) -> Reference:
    """A branch or tag as it is now."""
    try:
        if name is not None:
            return catalogue.do(calls.GetReference(name=name))
    except InvalidName:  # nothing can have such a name
        pass
    raise ReferenceNotFound(f"there is no branch or tag '{name}'", name=name or DETACHED)


def require_commit(revision: NessieRevision, subject: str) -> None:
    """Refuse a revision that does not begin with a hash, so that it would mean something else tomorrow."""
    if revision.is_name_only:
        raise InvalidRequest(f"{subject} must be provided.")
    if revision.commit is None:
        raise InvalidRequest(f"{subject} must contain a starting commit ID.")


def resolve_revision(
    catalogue: Catalogue, revision: NessieRevision, subject: str = "Hash", *, needs_commit: bool = False
) -> ResolvedRevision:
    """What a revision comes to; ``subject`` says what it is for, if it cannot be."""
    reference = find_reference(catalogue, revision.name) if revision.name is not None else None
    if needs_commit or reference is None:
        require_commit(revision, subject)
    return ResolvedRevision(reference=reference, commit=_walk_to_commit(catalogue, revision, reference))


def resolve_target(catalogue: Catalogue, revision: NessieRevision, subject: str) -> ResolvedRevision:
    """The branch that a request writes to, and the commit on it that its writer knows."""
    reference = find_reference(catalogue, revision.name) if revision.name is not None else None
    if reference is None or reference.kind is Kind.TAG:
        raise InvalidRequest(f"{subject} must be a branch.")
    require_commit(revision, "Expected hash")
    try:
        return ResolvedRevision(reference=reference, commit=_walk_to_commit(catalogue, revision, reference))
    except CommitNotFound as missing:
        if revision.steps:
            raise
        raise CommitNotFound(missing.message, commit=revision.commit, name=reference.name) from None


def _make_revision(name: str | None, commit: str | None, walk: str) -> NessieRevision:
    steps = _STEPS.findall(walk)
    if len(steps) > STEPS_MAX:
        raise InvalidRequest(f"a revision can have at most {STEPS_MAX} steps, got {len(steps):,}")
    return NessieRevision(
        name=None if name == DETACHED else name,
        commit=commit.lower() if commit else None,
        steps=tuple(_check_step(step) for step in steps),
    )


def _check_step(step: str) -> str:
    sign, amount = step[0], step[1:]
    if sign in _COUNTS and not 0 < int(amount[:20]) < 2**31 - 1:
        raise InvalidRequest(f"Illegal value {amount} for spec type {_COUNTS[sign]} ({sign})")
    return step


def _walk_to_commit(catalogue: Catalogue, revision: NessieRevision, reference: Reference | None) -> str:
    """The commit that a revision comes to, which must be in the history of the reference, if it names one."""
    at = reference.id if revision.commit is None and reference is not None else revision.commit
    assert at is not None
    if at == EMPTY_COMMIT_ID or (not revision.steps and reference is not None and at == reference.id):
        return at
    if len(at) < 64:
        raise CommitNotFound(
            f"there is no commit {at}; commit ids have 64 hexadecimal digits here", commit=at
        )
    prefix = f"{reference.name}@" if reference is not None else ""
    try:
        return catalogue.do(calls.Resolve(revision=f"{prefix}{at}{''.join(revision.steps)}")).commit
    except CommitNotFound as missing:
        if missing.details.get("commit") is None:  # the walk leads further back than there are commits
            return EMPTY_COMMIT_ID
        raise
