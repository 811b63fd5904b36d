"""Build dbt's models on a branch of the lake, and publish them if all of dbt's tests pass.

``python build.py LAKE`` in the directory of the dbt project.
"""

import sys
from pathlib import Path

from dbt.cli.main import dbtRunner

import penstock
from penstock.spark import session

BRANCH = "dbt"
PROJECT = str(Path(__file__).parent)


def build(address: str) -> bool:
    """Whether everything was built, passed its tests and was published."""
    with penstock.open(address, create=False, author="dbt") as lake:
        if any(branch.name == BRANCH for branch in lake.branches()):
            lake.branch(BRANCH).delete()  # of a run that failed
        lake.branch(BRANCH).create()
        spark = session(
            lake,
            conf={
                "spark.sql.defaultCatalog": "lake",  # sales.orders is lake.sales.orders
                "spark.penstock.ref": BRANCH,
                "spark.ui.enabled": False,
            },
        )
        try:
            ran = dbtRunner().invoke(["build", "--project-dir", PROJECT, "--profiles-dir", PROJECT])
        finally:
            spark.stop()
        if not ran.success:
            return False
        lake.publish(BRANCH, message="dbt build")
        lake.branch(BRANCH).delete()
        return True


if __name__ == "__main__":
    sys.exit(0 if build(sys.argv[1]) else 1)
