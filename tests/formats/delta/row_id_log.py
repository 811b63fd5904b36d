"""Reads a table's published log by the protocol's rules for ids of rows, and tells what breaks one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

DOMAIN = "delta.rowTracking"


def check_row_ids(location: str) -> int:
    """Go through all versions from the first on; the highest id that was given.

    Every file that comes gets ids above all that were given before, and keeps them for ever, with the version
    that it came with. The high-water mark covers them, and never falls.
    """
    highest, mark = -1, -1
    ids: dict[str, tuple[int, int]] = {}
    logs = sorted(Path(location.removeprefix("file://"), "_delta_log").glob("*[0-9].json"))
    assert [int(log.stem) for log in logs] == list(range(len(logs)))
    for version, log in enumerate(logs):
        actions: list[dict[str, Any]] = [json.loads(line) for line in log.read_text().splitlines()]
        given: list[tuple[int, int]] = []
        for action in actions:
            for kind in ("add", "remove"):
                if kind not in action:
                    continue
                file = action[kind]
                base, since = file["baseRowId"], file["defaultRowCommitVersion"]
                if file["path"] in ids:
                    assert ids[file["path"]] == (base, since), (version, file["path"])
                    continue
                assert kind == "add"
                ids[file["path"]] = (base, since)
                assert base > mark
                assert since == version
                given.append((base, base + json.loads(file["stats"])["numRecords"] - 1))
            if action.get("domainMetadata", {}).get("domain") == DOMAIN:
                now = json.loads(action["domainMetadata"]["configuration"])["rowIdHighWaterMark"]
                assert now > mark
                mark = now
        for first, last in sorted(given):
            assert first > highest, f"version {version} gives {first} again"
            highest = max(highest, last)
        assert mark >= highest
    return highest
