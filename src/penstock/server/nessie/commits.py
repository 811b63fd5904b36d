"""What a commit says of itself: from a writer's words and headers, and back to whoever reads it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from msgspec import UNSET

from penstock.errors import InvalidRequest
from penstock.lake.calls import CommitDescription
from penstock.model.commits import EMPTY_COMMIT_ID, Commit
from penstock.server.headers import Headers
from penstock.server.nessie import json_types

_PROPERTY: Final = "nessie-commit-property-"


def make_nessie_meta(commit: Commit) -> json_types.NessieCommitMeta:
    """A commit as Nessie's clients see it: without an author, its committer is the author."""
    return json_types.NessieCommitMeta(
        hash=commit.id,
        committer=commit.committer,
        authors=commit.authors or (commit.committer,),
        all_signed_off_by=commit.signed_off_by,
        message=commit.message,
        commit_time=json_types.format_instant(commit.time),
        author_time=json_types.format_instant(commit.author_time),
        all_properties=commit.properties or UNSET,
        parent_commit_hashes=list_parents(commit),
    )


def list_parents(commit: Commit) -> tuple[str, ...]:
    """All parents; a first commit follows the empty lake."""
    return commit.parents if commit.depth > 1 else (EMPTY_COMMIT_ID, *commit.parents)


def make_commit_description(
    meta: json_types.CommitMetaInput | None, headers: Headers, message: str = ""
) -> CommitDescription:
    """What a writer says of a commit, in the body and in headers, which add to it.

    ``message`` is what it says if the writer does not tell.
    """
    if meta is not None:
        _check_meta(meta)
    authors = _list_authors(meta)
    signers = _list_signers(meta)
    authors += _split_list(headers.get("nessie-commit-authors", ""))
    signers += _split_list(headers.get("nessie-commit-signedoffby", ""))
    header = next(iter(_strip_all(headers.get_values("nessie-commit-message"))), "")
    header = header or (meta.message if meta is not None else "")
    return CommitDescription(
        message=header or message,
        authors=tuple(authors),
        signed_off_by=tuple(signers),
        author_time=_parse_utc_time(meta.author_time) if meta is not None else None,
        properties=_commit_properties(meta, headers),
    )


def _check_meta(meta: json_types.CommitMetaInput) -> None:
    for value, what in (
        (meta.committer, "committer"),
        (meta.commit_time, "commit time"),
        (meta.hash, "commit hash"),
        (meta.parent_commit_hashes or None, "parent commit hashes"),
    ):
        if value is not None:
            raise InvalidRequest(f"Cannot set the {what} on the client side. It is set by the server.")


def _list_authors(meta: json_types.CommitMetaInput | None) -> list[str]:
    if meta is None:
        return []
    if meta.authors is not None:
        return [author for author in meta.authors if author]
    return [meta.author] if meta.author else []


def _list_signers(meta: json_types.CommitMetaInput | None) -> list[str]:
    if meta is None:
        return []
    if meta.all_signed_off_by is not None:
        return list(meta.all_signed_off_by)
    return [meta.signed_off_by] if meta.signed_off_by is not None else []


def _commit_properties(
    meta: json_types.CommitMetaInput | None, headers: Headers
) -> dict[str, tuple[str, ...]]:
    properties: dict[str, tuple[str, ...]] = {}
    if meta is not None and meta.all_properties is not None:
        properties = dict(meta.all_properties)
    elif meta is not None and meta.properties is not None:
        properties = {name: (value,) for name, value in meta.properties.items()}
    for header in headers:
        if header.startswith(_PROPERTY):
            name = header.removeprefix(_PROPERTY).strip()
            properties[name] = tuple(_strip_all(headers.get_values(header)))
    return properties


def _split_list(text: str) -> list[str]:
    return list(_strip_all(text.split(",")))


def _strip_all(texts: Iterable[str]) -> Iterable[str]:
    return (text.strip() for text in texts if text.strip())


def _parse_utc_time(moment: datetime | None) -> datetime | None:
    return moment.replace(tzinfo=UTC) if moment is not None and moment.tzinfo is None else moment
