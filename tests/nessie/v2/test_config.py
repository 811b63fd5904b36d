"""What a client asks first: the server's configuration."""

from __future__ import annotations

from penstock.lake.lake import Lake
from tests.nessie.v2.talking import EMPTY, Talk


def test_the_configuration_has_what_clients_check_and_nothing_else(nessie: Talk, lake: Lake) -> None:
    found = nessie.get("/config")
    created = found.pop("repositoryCreationTimestamp")
    assert created.endswith("Z")
    assert found.pop("oldestPossibleCommitTimestamp") == created
    assert found == {
        "defaultBranch": lake.default_branch,
        "minSupportedApiVersion": 1,
        "maxSupportedApiVersion": 2,
        "actualApiVersion": 2,
        "specVersion": "2.2.0",
        "noAncestorHash": EMPTY,
    }


def test_without_a_configuration_there_is_no_field_for_it(nessie: Talk) -> None:
    assert nessie.get("/config/repository?type=GARBAGE_COLLECTOR") == {}
    assert nessie.get("/config/repository") == {}


def test_a_policy_is_a_count_a_duration_or_a_time(nessie: Talk) -> None:
    for policy in ("NONE", "100", "P30D", "PT1H30M", "2026-11-01T00:00:00Z", "none"):
        config = {
            "type": "GARBAGE_COLLECTOR",
            "defaultCutoffPolicy": policy,
            "perRefCutoffPolicies": [{"referenceNamePattern": "dev/.*", "policy": "10"}],
            "newFilesGracePeriod": "PT3H",
            "expectedFileCountPerContent": 7,
        }
        nessie.post("/config/repository", {"config": config})
        assert nessie.get("/config/repository?type=GARBAGE_COLLECTOR") == {"configs": [config]}


def test_another_policy_is_refused(nessie: Talk) -> None:
    for policy in ("soon", "-1", "P", "PT", "2026-11-01"):
        config = {"type": "GARBAGE_COLLECTOR", "defaultCutoffPolicy": policy}
        error = nessie.refused(400, "POST", "/config/repository", {"config": config})
        assert error["message"].startswith(f"Failed to parse default-cutoff-value '{policy}'")


def test_other_types_of_configuration_are_refused(nessie: Talk) -> None:
    assert "OTHER" in nessie.refused(400, "GET", "/config/repository?type=OTHER")["message"]
    body = {"config": {"type": "OTHER", "x": 1}}
    assert "'OTHER' is not available" in nessie.refused(400, "POST", "/config/repository", body)["message"]
