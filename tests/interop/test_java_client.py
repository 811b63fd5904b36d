"""Nessie's Java client, which sits in the catalogues of Spark, Flink and Trino, against a started server."""

from __future__ import annotations

import pytest

from tests.interop.java_programs import java_program

SCENARIOS = [
    "the_configuration_is_understood",
    "every_content_comes_back_as_it_went",
    "references_are_created_assigned_and_deleted",
    "references_tell_how_far_they_are_apart",
    "the_log_tells_operations_and_parents",
    "long_answers_come_in_pages",
    "entries_are_found_by_key_range_and_filter",
    "a_diff_shows_both_sides",
    "keys_with_special_characters_are_found",
    "conflicting_commits_name_every_conflict",
    "a_merge_brings_what_the_branch_has",
    "a_conflicting_merge_names_its_conflicts",
    "a_merge_does_with_each_key_as_it_is_told",
    "a_transplant_keeps_the_commits_apart",
    "the_history_of_a_reference_is_consistent",
    "the_repository_keeps_its_configuration",
    "refusals_are_told_apart",
]


@pytest.fixture(scope="module")
def outcomes(nessie_uri: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What became of each scenario: all of them in one run, as a Java machine takes its time to start."""
    said = java_program("Scenarios", nessie_uri, directory=tmp_path_factory.mktemp("java"))
    lines = [line.split(" ", maxsplit=1) for line in said.splitlines()]
    return {rest.split(":", maxsplit=1)[0]: f"{outcome} {rest}" for outcome, rest in lines}


def test_the_program_runs_the_scenarios_that_are_listed_here(outcomes: dict[str, str]) -> None:
    assert sorted(outcomes) == sorted(SCENARIOS)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_nessies_java_client_finds_that(scenario: str, outcomes: dict[str, str]) -> None:
    assert outcomes[scenario] == f"ok {scenario}"
