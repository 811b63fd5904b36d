"""A DAG that loads orders on a branch of the lake, checks them there, and publishes them at one instant.

The lake's address is in ``PENSTOCK_LAKE``, and files arrive in the directory ``ORDERS_INBOX``.
"""

import os
import re
from pathlib import Path

import pyarrow.json
from airflow.sdk import dag, get_current_context, task

import penstock

CHECKS = {"no negative amounts": "SELECT * FROM sales.orders WHERE amount < 0"}


def open_lake() -> penstock.Lake:
    return penstock.open(os.environ["PENSTOCK_LAKE"], create=False, author="airflow")


@dag(schedule=None, catchup=False)
def nightly_orders():
    @task(retries=2)
    def create_branch() -> str:
        name = "airflow/" + re.sub(r"[^\w.-]", "-", get_current_context()["run_id"])
        with open_lake() as lake:
            if not any(branch.name == name for branch in lake.branches()):  # this is a second try
                lake.branch(name).create()
        return name

    @task(retries=2)
    def load(name: str) -> str:
        """Under an idempotency key, a file is loaded once, also if the task is repeated."""
        with open_lake() as lake:
            for file in sorted(Path(os.environ["ORDERS_INBOX"]).glob("*.json")):
                lake.table("sales.orders", name).append(
                    pyarrow.json.read_json(file), idempotency_key=f"{name}/{file.name}"
                )
        return name

    @task
    def publish(name: str) -> str:
        """Fails if a check finds rows. Then main is as it was, and the branch can be looked at."""
        with open_lake() as lake:
            commit = lake.publish(name, checks=CHECKS, message=f"orders of {name}").commit
            lake.branch(name).delete()
        return str(commit)

    publish(load(create_branch()))


nightly_orders()
