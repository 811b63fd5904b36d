"""Answering calls about the lake itself: its roots, settings, limits of history and tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.errors import InvalidRequest
from penstock.kernel import tokens
from penstock.kernel.description import (
    LakeDescription,
    change_description,
    check_description_size,
    read_description,
)
from penstock.lake import calls
from penstock.lake.answers import About
from penstock.model.clock import to_utc_datetime
from penstock.model.tokens import Token
from penstock.storage.forbidden_hosts import check_host
from penstock.storage.locations import is_under, normalise_location
from penstock.storage.moved_roots import check_added
from penstock.stores import get_place

if TYPE_CHECKING:
    from penstock.lake.embedded import Embedded

SETTINGS_MAX: Final = 100
SETTING_MAX_CHARS: Final = 16_384


class DescriptionHandlers:
    """Answers the calls about the lake itself."""

    def __init__(self, lake: Embedded) -> None:
        self._lake, self._kernel = lake, lake.kernel
        self.by_call: dict[type[calls.Call[Any]], Callable[[Any], Any]] = {
            calls.GetAbout: self._get_about,
            calls.ChangeRoots: self._change_roots,
            calls.GetSetting: self._get_setting,
            calls.PutSetting: self._put_setting,
            calls.KeepHistory: self._keep_history,
            calls.SetGrace: self._set_grace,
            calls.ListTokens: self._list_tokens,
            calls.FindToken: self._find_token,
            calls.PutToken: self._put_token,
            calls.RevokeToken: self._revoke_token,
        }

    def _get_about(self, _: calls.GetAbout) -> About:
        return self._describe_lake(read_description(self._kernel.store))

    def _describe_lake(self, description: LakeDescription) -> About:
        self._lake.require_same_roots(description)
        grace = self._kernel.graces.find_writer_grace()
        return About(
            id=description.id,
            url=get_place(self._kernel.store),
            default_branch=description.default_branch,
            created=to_utc_datetime(description.created_us),
            warehouse=description.warehouse,
            roots=list_roots(description) + _separate_roots(description),
            forked_from=description.forked_from,
            moving_to=description.sealed.target if description.sealed is not None else "",
            history_rules=tuple(rule for rule in description.history if rule.ended_us is None),
            grace_s=grace.grace_s,
            data_grace_days=grace.data_grace_days,
            moved_roots=description.moved_roots,
        )

    def _change_roots(self, call: calls.ChangeRoots) -> About:
        for root in call.add:
            check_host(root)
        added = [normalise_location(root) for root in call.add]
        removed = {normalise_location(root) for root in call.remove}

        def update_description(lake: LakeDescription) -> LakeDescription:
            if lake.warehouse in removed:
                raise InvalidRequest(f"{lake.warehouse} is the lake's warehouse, which cannot be removed")
            if missing := removed - set(lake.roots):
                raise InvalidRequest(f"not a root of the lake: {', '.join(sorted(missing))}")
            check_added(lake.moved_roots, (root for root in added if root not in lake.roots))
            roots = dict.fromkeys((*(root for root in lake.roots if root not in removed), *added))
            return check_description_size(lake, msgspec.structs.replace(lake, roots=tuple(roots)))

        changed = change_description(self._kernel.store, self._kernel.settings, update_description)
        self._lake.note_roots(changed)
        return self._describe_lake(changed)

    def _get_setting(self, call: calls.GetSetting) -> str | None:
        return read_description(self._kernel.store).settings.get(call.name)

    def _put_setting(self, call: calls.PutSetting) -> str | None:
        if not 0 < len(call.name) <= 100 or not call.name.isprintable():
            raise InvalidRequest("the name of a setting must have 1 to 100 printable characters")
        if call.value is not None and len(call.value) > SETTING_MAX_CHARS:
            raise InvalidRequest(f"a setting can have at most {SETTING_MAX_CHARS} characters")
        before: str | None = None

        def update_description(lake: LakeDescription) -> LakeDescription:
            nonlocal before
            before = lake.settings.get(call.name)
            settings = {name: value for name, value in lake.settings.items() if name != call.name}
            if call.value is not None:
                settings[call.name] = call.value
            if len(settings) > SETTINGS_MAX:
                raise InvalidRequest(f"a lake can have at most {SETTINGS_MAX} settings")
            return check_description_size(lake, msgspec.structs.replace(lake, settings=settings))

        change_description(self._kernel.store, self._kernel.settings, update_description)
        return before

    def _keep_history(self, call: calls.KeepHistory) -> None:
        self._kernel.keep_history(call.pattern, call.max_commits, call.max_days)

    def _set_grace(self, call: calls.SetGrace) -> About:
        self._kernel.set_grace(call.grace_s, call.data_grace_days)
        return self._get_about(calls.GetAbout())

    def _list_tokens(self, _: calls.ListTokens) -> tuple[Token, ...]:
        return tuple(tokens.list_tokens(self._kernel.store))

    def _find_token(self, call: calls.FindToken) -> Token | None:
        return tokens.find_token(self._kernel.store, call.id)

    def _put_token(self, call: calls.PutToken) -> Token:
        token = Token(
            id=call.id,
            name=call.name,
            secret_hash=call.secret_hash,
            grants=call.grants,
            created=to_utc_datetime(self._kernel.clock()),
            expires=call.expires,
        )
        return tokens.put_token(self._kernel.store, self._kernel.settings, token, call.replaces)

    def _revoke_token(self, call: calls.RevokeToken) -> Token:
        return tokens.revoke_token(self._kernel.store, self._kernel.settings, call.id)


def list_roots(description: LakeDescription) -> tuple[str, ...]:
    """Where tables may be, the warehouse first."""
    return tuple(place for place in (description.warehouse, *description.roots) if place)


def _separate_roots(description: LakeDescription) -> tuple[str, ...]:
    """Where files lie that were moved away from below a root that stays."""
    roots = list_roots(description)
    return tuple(
        moved_root.new
        for moved_root in description.moved_roots
        if moved_root.new != moved_root.old
        and any(moved_root.old != root and is_under(moved_root.old, root) for root in roots)
    )
