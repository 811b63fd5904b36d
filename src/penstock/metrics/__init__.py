"""What Penstock measures about itself: the metrics, the port they go through, and its adapters.

Nothing here is global. Who wants figures hands a ``Meter`` in; who does not pays for nothing.

- ``table``: every metric, with its help text, labels, unit and buckets.
- ``meter``: the port, and the silent meter that is the default.
- ``memory``: figures kept in this process, to be read at any time.
- ``prometheus``, ``opentelemetry``: figures for these systems, each behind an extra of that name.
"""
