"""Who may ask what about journals: the rule of each call."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from penstock.lake.call import Call
from penstock.model.commits import Commit
from penstock.model.tokens import Role
from penstock.server.access import write_rules
from penstock.server.access.format_rules import AccessRule
from penstock.server.access.rights import CallerRights
from penstock_journal.calls import AppendLines, Journal, ReadJournal, SweepJournals


def append_lines(rights: CallerRights, call: AppendLines) -> Commit:
    keys = rights.caller.require_role(Role.WRITE, rights.get_reference_or_default(call.branch))
    rights.caller.require_key(keys, Role.WRITE, call.key)
    return rights.do(call)


def read_journal(rights: CallerRights, call: ReadJournal) -> Journal:
    at, keys = rights.find_readable_keys(call.at, call.via)
    rights.caller.require_key(keys, Role.READ, call.key)
    return rights.do(msgspec.structs.replace(call, at=at))


RULES: Final[dict[type[Call[Any]], AccessRule]] = {
    AppendLines: append_lines,
    ReadJournal: read_journal,
    SweepJournals: write_rules.make_rule_for_role(Role.MAINTAIN),
}
