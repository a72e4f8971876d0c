"""Figures of whole runs, as PromQL: what the tables of runs show of each.

Memory of the ranks on one host is added up, because they share its limit. The sum of their peaks is at most
too high: they may have been at different times.
"""

from __future__ import annotations

from grafana.generator import names
from otel_quant.schema import semconv

RUN = names.RUN_NAME
MODEL, METHOD = names.label(semconv.INPUT_NAME), names.label(semconv.CALIBRATION_METHOD)
CONFIG, RANK = names.label(semconv.CONFIG_NAME), names.label(semconv.RUN_RANK)
HOST = "host_name"
MEMORY = names.series(semconv.RUN_MEMORY_USAGE)
LIMIT = names.series(semconv.RUN_MEMORY_LIMIT)
MOST_RUNS = 1000
"""Runs that a table shows, and a menu: the newest."""
MOST_LINES = 50
"""Lines of a chart of runs."""
MOST_POINTS = 150
"""Points of a chart of runs. What a store does for it grows with their number and the number of all runs; a run
sends metrics once a minute."""

_START = f"max_over_time({names.series(semconv.RUN_START, names.CHOSEN)}[$__range])"
_END = f"max_over_time({names.series(semconv.RUN_END, names.CHOSEN)}[$__range])"
_PEAK = f"max_over_time({names.series(semconv.RUN_MEMORY_PEAK, names.CHOSEN)}[$__range])"
_FAILED_STEPS = names.series(
    semconv.STEP_DURATION, f'{names.label(semconv.ERROR_TYPE)}!=""', part="count"
)
# A run's own process is the first of those that have its name.
_FIRST = f"bottomk by ({RUN}) (1, max by (job, instance, {RUN}) ({_START}))"
_SEEN = f"max_over_time({names.series(semconv.RUN_LAST_SEEN, names.CHOSEN)}[$__range])"

ALL = f"max by ({RUN}) (max_over_time({names.prometheus(semconv.RUN_START)[0]}{{{names.OF_JOB}, {names.CHOSEN}}}[$__range]))"
"""Of all runs in the time range; what is below has the newest (`panels.board`)."""

BEGAN = (
    f"topk({MOST_RUNS}, 1000 * bottomk by ({RUN}) (1,"
    f" max by (job, {RUN}, {MODEL}, {METHOD}, {CONFIG}) ({_START})))"
)
"""Milliseconds since the epoch, with what is known of the run when it begins."""

DURATION = f"1e9 * (max by ({RUN}) ({_SEEN} or {_END}) - min by ({RUN}) ({_START}))"
"""Nanoseconds: to its end, or to when it was last seen."""


def of_ranks(values: str, by: str = f"{RUN}, {HOST}") -> str:
    """Returns the sum of the ranks of a run: each has its own, and they share what there is.

    The series have the labels of a run, its ranks and their hosts. A child's are its rank's too, which
    is the highest that has them.
    """
    return f"sum by ({by}) (max by ({by}, {RANK}) ({values}))"


_PEAKS = of_ranks(
    f"{_PEAK} * on (job, instance, {RUN}) group_left ({RANK})"
    f" (topk by (job, instance, {RUN}) (1, {_START}) > bool 0)"
)
_LIMITS = (
    f"max by ({RUN}, {HOST}) ({names.named(f'max_over_time({LIMIT}[$__range])', over=names.RANGE)})"
)
PEAK = f"max by ({RUN}) ({_PEAKS})"
"""Of several hosts, the highest."""


def of_the_highest(values: str) -> str:
    """Returns series of runs over time, only of runs whose peak in the time range is among the highest."""
    return f"{values} and on ({RUN}) topk({MOST_LINES}, {PEAK.replace('[$__range]', '[$__range] @ end()')})"


SHARE = f"max by ({RUN}) ({_PEAKS} / {_LIMITS})"
# Not the value at each point: of 30 days a point is hours after the one before, and few runs go on at one.
_USED, _ALLOWED = (f"max_over_time({each}[{names.SINCE_LAST_POINT}])" for each in (MEMORY, LIMIT))
_ITS_HOST = f"job, instance, {HOST}"


def _of_ranks_then(values: str) -> str:
    return of_ranks(names.named(values, labels=(RANK,), over=names.SINCE_LAST_POINT))


MEMORY_THEN = _of_ranks_then(_USED)
SHARE_THEN = _of_ranks_then(
    f"{_USED} / on ({_ITS_HOST}) group_left () max by ({_ITS_HOST}) ({_ALLOWED})"
)
GPU = f"max by ({RUN}) ({names.named(f'max_over_time({names.series(semconv.RUN_GPU_MEMORY_USAGE)}[$__range])', over=names.RANGE)})"
_MOVED = f"sum by (job, instance) (max_over_time({names.series(semconv.RUN_DISK_IO)}[$__range]))"
DISK = of_ranks(names.named(_MOVED, labels=(RANK,), over=names.RANGE), RUN)
FAILED = f"sum by ({RUN}) ({names.named(f'sum by (job, instance) (max_over_time({_FAILED_STEPS}[$__range]))', over=names.RANGE)}) > 0"
"""Failed steps of the runs that have any."""

_SILENT = 300
"""Seconds after which a run that has not ended has most likely been killed."""
# `min` over processes that share an id: one of them has ended.
_PROCESS = (
    f"min by (job, instance, {RUN}) ({_END} * 0 or 1 + 2 * ({_SEEN} < bool (time() - {_SILENT})))"
)
STATE = (
    f"(({FAILED}) * 0 + 2) or max by ({RUN}) ({_FIRST} * 0 + on (job, instance, {RUN}) {_PROCESS})"
)
"""0 ended, 1 running, 2 failed, 3 vanished. Of the process that began it."""
