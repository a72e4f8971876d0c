"""Peaks computed from readings. The figures in this file are in MiB, the tracker's in bytes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from otel_quant.capture.recorder.ongoing import Ongoing
from otel_quant.capture.recorder.peaks import PeakTracker, with_peaks
from otel_quant.schema.figures import ALL_GPUS_MEMORY, RESOURCES, TREE_GPU_MEMORY, TREE_MEMORY
from otel_quant.schema.readings import (
    AllocatorMark,
    GpuReading,
    MemoryReading,
    Peaks,
    Reading,
    TorchMemory,
)

MIB = 1 << 20

Child = tuple[int, int, int | None]


def memory(
    rss: int, mark: int | None, *children: Child, reaped: int | None = None, faults: int | None = 0
) -> MemoryReading:
    return MemoryReading(
        rss=rss * MIB,
        tree_rss=(rss + sum(child[1] for child in children)) * MIB,
        high_water=mark * MIB if mark is not None else None,
        children=tuple(
            (pid, used * MIB, own * MIB if own is not None else None) for pid, used, own in children
        ),
        reaped_high_water=reaped * MIB if reaped is not None else None,
        reaped_faults=None if children else faults,
    )


def reading(of: MemoryReading | None, *gpus: GpuReading) -> Reading:
    resources = {"memory": of, "gpu": gpus}
    return Reading(0, 0, {name: record for name, record in resources.items() if record})


def tracker_from(first: Reading) -> PeakTracker:
    return PeakTracker(first, with_peaks(RESOURCES))


def lower(tracker: PeakTracker, of: MemoryReading, pids: frozenset[int] = frozenset()) -> None:
    """Notes in a tracker that the kernel's marks have been lowered."""
    tracker.marks_lowered(reading(of.with_marks_lowered(pids)))


def peaks_of(*readings: MemoryReading | None) -> Peaks:
    tracker = tracker_from(reading(readings[0]))
    for later in readings[1:]:
        tracker.fold(reading(later))
    return tracker.result()


def peak(total: int, source: str, process: int) -> Peaks:
    name = TREE_MEMORY.name
    return Peaks({name: total * MIB}, {name: source}, process_memory=process * MIB)


SAMPLE = MemoryReading(120 * MIB, 120 * MIB, is_brief=True)

OF_READINGS: dict[str, tuple[list[MemoryReading | None], Peaks]] = {
    "a mark that rose is the peak even if all samples are lower": (
        [memory(100, 100), memory(120, 120), memory(100, 600)], peak(600, "kernel", 600),
    ),
    "the marks at the ends of a step count across brief samples": ([memory(100, 100), SAMPLE, memory(100, 600)], peak(600, "kernel", 600)),
    "a mark that did not rise across them does not": ([memory(100, 900), SAMPLE, memory(100, 900)], peak(120, "sampled", 120)),
    "a mark that did not rise during the step does not count": (
        [memory(100, 900), memory(300, 900), memory(100, 900)], peak(300, "sampled", 300),
    ),
    "without marks the largest sample is the peak": ([memory(100, None), memory(250, None), memory(90, None)], peak(250, "sampled", 250)),
    "a child's mark is added to the memory of the other processes": (
        [memory(100, 100, (7, 50, 50)), memory(105, 105, (7, 50, 550))], peak(650, "sampled", 105),
    ),
    "the smaller memory of the other processes at two readings is added": (
        [memory(400, 400, (7, 50, 50)), memory(100, 400, (7, 50, 300))], peak(450, "sampled", 400),
    ),
    "the present memory of the others is added if a child is at its mark": (
        [memory(100, 100), memory(104, 104, (7, 500, 500)), memory(104, 104)],
        peak(604, "sampled", 104),
    ),
    "and if this process is at its mark": (
        [
            memory(100, 100, (7, 50, 50)), memory(600, 600, (7, 54, 54)),
            memory(100, 600, (7, 54, 54)),
        ],
        peak(654, "sampled", 600),
    ),
    "the mark of a new child counts": ([memory(100, 100), memory(100, 100, (7, 20, 500))], peak(600, "sampled", 100)),
    "the mark that a child had before the step does not count": (
        [memory(100, 100, (7, 20, 500)), memory(100, 100, (7, 30, 500))], peak(130, "sampled", 100),
    ),
    "the mark of reaped children counts if it rose": (
        [memory(100, 100), memory(100, 100, reaped=500, faults=9)], peak(600, "sampled", 100),
    ),
    "the mark of children reaped before the step does not count": (
        [memory(100, 100, reaped=500), memory(101, 101, reaped=500)], peak(101, "kernel", 101),
    ),
    "a process tree that cannot be read has no peak": ([None, None], Peaks()),
    "a reading without memory does not change the peak": ([memory(100, 100), None, memory(100, 300)], peak(300, "kernel", 300)),
}  # fmt: skip


@pytest.mark.parametrize(("readings", "expected"), OF_READINGS.values(), ids=OF_READINGS)
def test_the_peak_is_computed_from_readings(
    readings: list[MemoryReading | None], expected: Peaks
) -> None:
    assert peaks_of(*readings) == expected


def test_a_peak_is_not_marked_as_the_kernels_if_a_child_may_have_lived() -> None:
    for between in (
        (memory(100, 600, (7, 1, 1)),),  # it was read
        (memory(100, 600, faults=9),),  # it was waited for
        (memory(100, 600, faults=None),),  # it is a zombie, or could have ended unnoticed
        (memory(100, 600), memory(100, 600, faults=9), memory(100, 600, faults=9)),
    ):
        expected = peak(600, "sampled", 600)
        assert peaks_of(memory(100, 100), *between, memory(100, 600)) == expected
    # One that had ended before the step has no effect on the step.
    before = memory(100, 100, faults=9)
    assert peaks_of(before, memory(100, 600, faults=9)) == peak(600, "kernel", 600)


@pytest.mark.parametrize(
    ("possible", "mark", "source"),
    [
        (350, 900, "at_least"),  # many more pages were touched than were seen
        (350, 125, "sampled"),  # ... but the mark of an earlier time is not much higher
        (125, 900, "sampled"),
        (0, 900, "sampled"),  # nothing is known of page faults
        (350, None, "sampled"),
    ],
)
def test_a_sampled_peak_that_page_faults_contradict_is_marked(
    possible: int, mark: int | None, source: str
) -> None:
    touched = SAMPLE._replace(possible=possible * MIB)
    readings = memory(100, mark), touched, memory(100, mark)
    assert peaks_of(*readings) == peak(120, source, 120)
    # What was touched before the step does not count, nor where the mark rose in it.
    assert peaks_of(touched, *readings[2:]) == peak(120, "sampled", 120)
    if mark is not None:
        assert peaks_of(*readings, memory(100, mark + 1)) == peak(mark + 1, "kernel", mark + 1)


@pytest.mark.parametrize("later", [300, 100])
def test_a_kernel_peak_after_a_reset_is_used_even_below_an_earlier_one(later: int) -> None:
    tracker = tracker_from(reading(memory(100, 900)))
    lower(tracker, memory(100, 900))
    tracker.fold(reading(memory(100, later)))
    assert tracker.result() == peak(later, "kernel", later)


def test_a_reset_in_an_inner_step_keeps_the_peak_of_the_outer_step() -> None:
    outer = tracker_from(reading(memory(100, 100)))
    outer.fold(reading(memory(100, 600)))
    lower(outer, memory(100, 600))
    outer.fold(reading(memory(100, 200)))
    assert outer.result() == peak(600, "kernel", 600)


@pytest.mark.parametrize(("lowered", "later", "total"), [((7,), 400, 500), ((), 800, 150)])
def test_a_childs_kernel_peak_after_a_reset_is_used_if_it_was_lowered(
    lowered: tuple[int, ...], later: int, total: int
) -> None:
    before = memory(100, 100, (7, 50, 800))
    tracker = tracker_from(reading(before))
    lower(tracker, before, frozenset(lowered))
    tracker.fold(reading(memory(100, 100, (7, 50, later))))
    assert tracker.result() == peak(total, "sampled", 100)


def test_gpus_have_a_peak_of_the_sum_and_a_peak_of_each_device() -> None:
    def gpu(index: int, used: int, own: int | None) -> GpuReading:
        return GpuReading(index=index, id=f"GPU-{index}", name=None, used=used, process_used=own)

    tracker = tracker_from(reading(None, gpu(0, 10, 1), gpu(1, 20, None)))
    tracker.fold(reading(None, gpu(0, 30, 5), gpu(1, 5, None)))
    tracker.fold(reading(None, gpu(0, 15, 9), gpu(1, 15, None)))
    assert tracker.result() == Peaks(
        {ALL_GPUS_MEMORY.name: 35},
        devices={"gpu": {0: {"memory": 30, "process_memory": 9}, 1: {"memory": 20}}},
    )


CONTEXT = 500
"""What a process holds of a GPU outside of the allocator."""


def torch(reserved: int, mark: int, moves: int) -> TorchMemory:
    """The allocator's counters; half of what is reserved is allocated."""
    half = AllocatorMark(moves, mark // 2)
    return TorchMemory(reserved // 2, reserved, half, AllocatorMark(moves, mark))


def on_gpu(
    reserved: int, mark: int, moves: int = 1, *, index: int = 0, processes: int = 1, others: int = 0
) -> GpuReading:
    """A GPU on which this process has a context and what torch has reserved."""
    own = CONTEXT + reserved
    return GpuReading(
        index, f"GPU-{index}", None, own + others, 80_000, own,
        torch=torch(reserved, mark, moves), processes=processes,
    )  # fmt: skip


UNUSED = GpuReading(0, "GPU-0", None, 0, 80_000, 0, processes=0)
SPIKE = CONTEXT + 2100


@pytest.mark.parametrize(
    ("readings", "tree", "source"),
    [
        pytest.param([on_gpu(100, 100), on_gpu(100, 2100, 2)], SPIKE, "allocator", id="a spike between two readings"),
        pytest.param([on_gpu(100, 2100), on_gpu(200, 2100)], CONTEXT + 200, "sampled", id="a mark of before the step"),
        pytest.param([on_gpu(100, 9, 3), on_gpu(100, 8, 2)], CONTEXT + 100, "sampled", id="a reading that comes late"),
        pytest.param([UNUSED, on_gpu(0, 2100)], SPIKE, "allocator", id="torch began to use the GPU in the step"),
        pytest.param([None, on_gpu(0, 2100)], CONTEXT, "sampled", id="the GPU could not be read at its start"),
        pytest.param([on_gpu(100, 9000), on_gpu(100, 300, 2)], CONTEXT + 300, "sampled", id="the program has reset its mark"),
        pytest.param([on_gpu(100, 2100), replace(on_gpu(100, 2100), torch=TorchMemory(50, 100, AllocatorMark(2, 90), AllocatorMark(1, 2100)))], CONTEXT + 100, "sampled", id="only what is allocated has risen"),
        pytest.param([on_gpu(0, 0), on_gpu(2500, 2500, 2), on_gpu(0, 2500, 2)], CONTEXT + 2500, "allocator", id="a sample has seen it"),
        pytest.param([on_gpu(0, 0), on_gpu(50, 2100, 2, processes=2)], SPIKE, "sampled", id="a child has memory there too"),
    ],
)  # fmt: skip
def test_a_mark_of_torchs_allocator_that_rose_within_a_step_is_its_peak(
    readings: list[GpuReading | None], tree: int, source: str
) -> None:
    first, *later = (reading(None, *filter(None, [each])) for each in readings)
    tracker = tracker_from(first)
    for each in later:
        tracker.fold(each)
    peaks = tracker.result()
    assert peaks.figures[TREE_GPU_MEMORY.name] == tree
    assert peaks.sources == {TREE_GPU_MEMORY.name: source}
    assert peaks.devices["gpu"][0]["process_memory"] == tree


def test_each_step_has_its_own_spikes_on_the_gpu() -> None:
    """Two that follow each other within a third, and one beside them that ends before the second spike."""
    tree = TREE_GPU_MEMORY.name
    readings = [
        on_gpu(100, 100), on_gpu(100, 1100, 2), on_gpu(100, 1100, 2), on_gpu(100, 3100, 3)
    ]  # fmt: skip
    steps = {"outer": (0, 4), "first": (0, 2), "beside": (1, 3), "second": (2, 4)}
    found = {}
    for name, (begin, end) in steps.items():
        tracker = tracker_from(reading(None, readings[begin]))
        for each in readings[begin + 1 : end]:
            tracker.fold(reading(None, each))
        found[name] = tracker.result().figures[tree] - CONTEXT
    assert found == {"outer": 3100, "first": 1100, "beside": 100, "second": 3100}


def test_peaks_of_allocators_count_for_the_device_and_for_torch_too() -> None:
    first, second = (
        [on_gpu(100, mark, moves, index=index, others=others) for index, mark, moves in rows]
        for others, rows in ((70, ((0, 100, 1), (1, 100, 1))), (40, ((0, 900, 2), (1, 500, 2))))
    )
    tracker = tracker_from(reading(None, *first))
    tracker.fold(reading(None, *second))
    peaks = tracker.result()
    assert peaks.devices["gpu"][0] == {
        "memory": CONTEXT + 940, "process_memory": CONTEXT + 900, "torch_allocated": 450, "torch_reserved": 900,
    }  # fmt: skip
    # Of two devices nobody knows whether both were at their marks at one time.
    assert peaks.figures[TREE_GPU_MEMORY.name] == 2 * CONTEXT + 900 + 100
    assert peaks.sources == {TREE_GPU_MEMORY.name: "sampled"}


def test_without_memory_of_the_process_what_torch_had_reserved_has_a_peak() -> None:
    unlisted = [replace(on_gpu(100, mark, moves), process_used=None) for mark, moves in ((100, 1), (900, 2))]  # fmt: skip
    tracker = tracker_from(reading(None, unlisted[0]))
    tracker.fold(reading(None, unlisted[1]))
    peaks = tracker.result()
    assert TREE_GPU_MEMORY.name not in peaks.figures
    assert peaks.sources == {}
    assert peaks.devices["gpu"][0]["torch_reserved"] == 900


def ordered(order: int, of: MemoryReading) -> Reading:
    return Reading(0, 0, {"memory": of}, order)


def test_a_step_begins_with_the_newest_reading_although_an_older_one_comes_late() -> None:
    figures = Ongoing(RESOURCES)
    figures.begin(ordered(1, memory(100, 100)))
    newest = ordered(3, memory(500, 500))
    assert figures.fold(newest) is newest
    late = figures.begin_step(ordered(2, memory(200, 200)))
    assert (figures.latest, late.result()) == (newest, peak(500, "kernel", 500))


def test_a_mark_that_was_lowered_right_after_an_older_reading_counts_although_it_comes_late() -> (
    None
):
    before, after = memory(100, 900, (7, 50, 600)), memory(100, 100, (7, 50, 50))
    tracker = tracker_from(ordered(1, memory(100, 100, (7, 50, 50))))
    tracker.marks_lowered(ordered(2, after))
    tracker.fold(ordered(5, memory(100, 200, (7, 50, 50))))
    tracker.fold(ordered(3, before)._replace(lowered=ordered(4, after)))
    assert tracker.result() == peak(950, "sampled", 900)


def test_a_report_restarts_the_counts_and_the_run_continues_its_own() -> None:
    figures = Ongoing(RESOURCES)
    assert figures.fold(ordered(0, memory(50, 50))).order == 0  # before the run: counted nowhere
    figures.begin(ordered(1, memory(100, 100)))
    figures.count_step(failed=True)
    figures.fold(ordered(2, memory(900, 900)))
    figures.reported(ordered(3, memory(200, 900)))
    figures.count_step(failed=False)
    found = [
        (period.steps, period.failed, period.tracker.result())
        for period in (figures.whole, figures.unreported)
        if period is not None
    ]
    assert found == [(2, 1, peak(900, "kernel", 900)), (1, 0, peak(200, "sampled", 200))]
