"""Runs the DAG of examples/airflow with Airflow, every task of it, and prints how each ended."""

import json

import nightly_orders  # type: ignore[import-not-found]

run = nightly_orders.nightly_orders().test()
states = {instance.task_id: str(instance.state) for instance in run.get_task_instances()}
print("\n" + json.dumps({"run": str(run.state), "tasks": states}))
