"""Processes: functions that run apart from this process, within bounds of memory and time.

What other people send, an expression, a query or packed rows, may need any amount of memory and never end. A
process that is lost to it must not be the one that answers everybody else. ``ProcessPool.run_function`` has a
function run in a process of its own:

    pool = ProcessPool(WorkerPoolLimits(memory_max_bytes=2**30))
    output = pool.run("package.module:function", argument)

- ``pool``: keeps processes ready, and has requests wait their turn.
- ``process``: one of them as this process sees it; whoever waits for it also watches its memory.
- ``child_process``: what runs in it, and the ``ChildTask`` that a function is given there.
- ``frames``: what the two say to each other.

Nothing that comes back is unpickled: a process that was taken over can answer wrongly, and no more.
"""
