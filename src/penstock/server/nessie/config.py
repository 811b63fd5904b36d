"""Handlers about the server and the repository as a whole."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from penstock.errors import InvalidRequest
from penstock.lake import calls
from penstock.model.commits import EMPTY_COMMIT_ID
from penstock.model.decoders import get_json_decoder
from penstock.server.nessie.codec import require_body
from penstock.server.nessie.json_types import Instant, Int, NessieShape, format_instant
from penstock.server.routes import RouteRequest

SPEC_VERSION: Final = "2.2.0"

_COLLECTOR: Final = "GARBAGE_COLLECTOR"
_POLICY: Final = re.compile(
    r"NONE|[1-9]\d{0,10}"
    r"|[-+]?P(?=[-+\dT])(?:[-+]?\d+D)?(?:T(?=[-+\d])(?:[-+]?\d+H)?(?:[-+]?\d+M)?(?:[-+]?\d+(?:[.,]\d{0,9})?S)?)?"
    r"|[1-9]\d{3}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)",
    re.IGNORECASE,
)


class NessieConfiguration(NessieShape, frozen=True, kw_only=True):
    """What a client must know of the server."""

    default_branch: str
    min_supported_api_version: int = 1
    max_supported_api_version: int = 2
    actual_api_version: int = 2
    spec_version: str = SPEC_VERSION
    no_ancestor_hash: str = EMPTY_COMMIT_ID
    """The hash of an empty branch."""
    repository_creation_timestamp: Instant
    oldest_possible_commit_timestamp: Instant


class ReferenceCutoffPolicy(NessieShape, frozen=True, kw_only=True):
    """How much history references keep whose names match a pattern."""

    reference_name_pattern: str
    policy: str


class RepositoryConfig(NessieShape, frozen=True, kw_only=True):
    """What somebody noted for the collection of data files. The lake keeps it; it does not act by it."""

    type: str
    """Only ``GARBAGE_COLLECTOR`` is known."""
    default_cutoff_policy: str | UnsetType | None = UNSET
    """A number of commits, a duration, a time, or ``NONE``."""
    per_ref_cutoff_policies: tuple[ReferenceCutoffPolicy, ...] | UnsetType | None = UNSET
    new_files_grace_period: str | UnsetType | None = UNSET
    expected_file_count_per_content: Int | UnsetType | None = UNSET


class ConfigQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which configurations to read."""

    type: tuple[str, ...] = ()
    """May be given several times."""


class RepositoryConfigResponse(NessieShape, frozen=True, kw_only=True):
    """Those that there are."""

    configs: tuple[RepositoryConfig, ...] | UnsetType = UNSET


class UpdateRepositoryConfigRequest(NessieShape, frozen=True, kw_only=True):
    """The configuration from now on."""

    config: RepositoryConfig


class UpdateRepositoryConfigResponse(NessieShape, frozen=True, kw_only=True):
    """The configuration up to now."""

    previous: RepositoryConfig | None = None


def get_config(ask: RouteRequest) -> NessieConfiguration:
    about = ask.catalogue.do(calls.GetAbout())
    return NessieConfiguration(
        default_branch=about.default_branch,
        repository_creation_timestamp=format_instant(about.created),
        oldest_possible_commit_timestamp=format_instant(about.created),
    )


def get_repository_config(ask: RouteRequest) -> RepositoryConfigResponse:
    query: ConfigQuery = ask.query
    for name in query.type:
        if name != _COLLECTOR:
            raise InvalidRequest(f"No repository config type registered for name {name}")
    noted = (
        ask.catalogue.do(calls.GetSetting(name=_make_setting_name(_COLLECTOR)))
        if _COLLECTOR in query.type
        else None
    )
    return RepositoryConfigResponse(configs=(_parse_config(noted),) if noted is not None else UNSET)


def update_repository_config(ask: RouteRequest) -> UpdateRepositoryConfigResponse:
    update: UpdateRepositoryConfigRequest = require_body(
        ask.body, "updateRepositoryConfig.repositoryConfigUpdate"
    )
    config = update.config
    if config.type != _COLLECTOR:
        raise InvalidRequest(
            f"Repository config type bundle for '{config.type}' is not available on the Nessie server side."
        )
    if config.default_cutoff_policy and not _POLICY.fullmatch(config.default_cutoff_policy):
        raise InvalidRequest(
            f"Failed to parse default-cutoff-value '{config.default_cutoff_policy}',"
            "Default cut-off-policy must be either the number of commits, a duration (as per "
            "java.time.Duration) or an ISO instant (like 2011-12-03T10:15:30Z) "
        )
    text = msgspec.json.encode(_remove_empty_fields(config)).decode()
    before = ask.catalogue.do(calls.PutSetting(name=_make_setting_name(_COLLECTOR), value=text))
    return UpdateRepositoryConfigResponse(previous=_parse_config(before) if before is not None else None)


def _make_setting_name(type_name: str) -> str:
    return f"nessie/{type_name}"


def _parse_config(text: str) -> RepositoryConfig:
    return get_json_decoder(RepositoryConfig).decode(text)


def _remove_empty_fields(config: RepositoryConfig) -> RepositoryConfig:
    """What is null or empty is left out, as Nessie does."""
    absent: dict[str, Any] = {
        name: UNSET for name in config.__struct_fields__ if getattr(config, name) in (None, ())
    }
    return msgspec.structs.replace(config, **absent)
