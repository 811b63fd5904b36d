"""Many jobs that write files, to which anything may happen: tasks, drivers and answers are lost."""

from __future__ import annotations

import random

import msgspec
import pytest

from tests.spark.cluster.cluster import Cluster
from tests.spark.cluster.files_scene import FilesScene
from tests.spark.cluster.test_rounds import ROUNDS, Crew, some_job


@pytest.mark.reliability
def test_properties_1_to_9_whatever_happens_to_jobs_each_row_is_there_once_and_none_is_there_in_part(
    cluster: Cluster, events: FilesScene, seed: int
) -> None:
    chance = random.Random(seed)
    crew = Crew(cluster, events)
    expected: list[int] = []
    try:
        for number in range(ROUNDS):
            job = msgspec.structs.replace(
                some_job(chance, number), format="csv", job_branch=chance.random() < 0.3
            )
            after = list(job.ids) if job.mode == "overwrite" else [*expected, *job.ids]
            with events.watched(expected, after):
                crew.finish(job, chance)
            expected = after
            assert events.ids() == expected, f"after round {number}"
            assert len(events.lake.log()) == number + 1
    finally:
        crew.close()
    assert not events.lake.fsck().damages
    events.sweep()
