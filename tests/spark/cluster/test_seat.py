"""A test whose job hangs is the only one that fails by it."""

from __future__ import annotations

from tests.spark.cluster.drivers import DriverSeat
from tests.spark.cluster.jobs import Job
from tests.spark.cluster.scene import Scene


def test_after_a_job_that_hangs_there_is_another_driver(seat: DriverSeat, scene: Scene) -> None:
    hanging, job, gate = seat.free_driver(), Job(), scene.gate()
    assert seat.free_driver() is hanging
    hanging.begin(Job(faults=(f"last wait 0 9 {gate}",)))
    gate.wait()
    other = seat.free_driver()
    assert other is not hanging
    assert other.do(job).commit == scene.lake.resolve()
    assert scene.ids() == list(job.ids)
