"""Materializes the assets of examples/dagster with Dagster: ``dagster_program.py LAKE AMOUNT…``."""

import json
import sys

import dagster as dg  # type: ignore[import-not-found]
import orders as recipe  # type: ignore[import-not-found]

address, *amounts = sys.argv[1:]
ran = dg.materialize(
    [recipe.orders, recipe.totals, recipe.published],
    resources={"lake": recipe.PenstockLake(address=address)},
    run_config=dg.RunConfig(
        {"orders": recipe.Orders(ids=list(range(len(amounts))), amounts=[float(text) for text in amounts])}
    ),
    raise_on_error=False,
)
failed = [event.step_key for event in ran.all_events if event.is_step_failure]
print(json.dumps({"success": ran.success, "failed": failed, "run": ran.run_id}))
