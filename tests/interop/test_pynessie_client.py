"""Nessie's Python client against a started server, in an environment of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop import installed
from tests.servers.process import Missing

SCENARIOS = Path(__file__).with_name("pynessie_scenarios.py")


@pytest.mark.parametrize(
    "scenario",
    [
        "every_content_comes_back_as_it_went",
        "a_namespaces_properties_are_not_seen_and_stay",
        "one_commit_carries_several_operations",
        "a_commit_meta_is_complete",
        "a_long_log_comes_in_pages",
        "keys_come_in_pages",
        "keys_may_hold_dots_and_other_letters",
        "branches_and_tags_move",
        "merges_and_cherry_picks_answer_with_their_commits",
        "refusals_are_told_apart",
    ],
)
def test_nessies_python_client_finds_that(scenario: str, nessie_uri: str, trunk: str, tmp_path: Path) -> None:
    try:
        python = installed.python_environment("pynessie") / "python"
    except Missing as missing:
        pytest.skip(str(missing))
    ended = installed.run([python, SCENARIOS, scenario, nessie_uri, trunk], {}, tmp_path)
    assert ended.returncode == 0, ended.stderr
