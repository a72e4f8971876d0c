"""Peaks computed from readings. The figures in this file are in MiB, the tracker's in bytes."""

from __future__ import annotations

from otel_quant.capture.recorder.ongoing import Ongoing
from otel_quant.capture.recorder.peaks import PeakTracker, with_peaks
from otel_quant.schema.figures import RESOURCES
from otel_quant.schema.records import GpuReading, MemoryReading, Peaks, Reading

MIB = 1 << 20

Child = tuple[int, int, int | None]


def memory(
    rss: int,
    mark: int | None,
    *children: Child,
    reaped: int | None = None,
    faults: int | None = 0,
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
    return Peaks({"memory": total * MIB}, {"memory": source}, process_memory=process * MIB)


def test_a_mark_that_rose_is_the_peak_even_if_all_samples_are_lower() -> None:
    assert peaks_of(memory(100, 100), memory(120, 120), memory(100, 600)) == peak(
        600, "kernel", 600
    )


def test_the_marks_at_the_ends_of_a_step_count_across_brief_samples_between_them() -> None:
    sample = MemoryReading(120 * MIB, 120 * MIB, is_brief=True)
    assert peaks_of(memory(100, 100), sample, memory(100, 600)) == peak(600, "kernel", 600)
    assert peaks_of(memory(100, 900), sample, memory(100, 900)) == peak(120, "sampled", 120)


def test_a_mark_that_did_not_rise_during_the_step_does_not_count() -> None:
    assert peaks_of(memory(100, 900), memory(300, 900), memory(100, 900)) == peak(
        300, "sampled", 300
    )


def test_a_mark_that_rose_before_the_step_does_not_count() -> None:
    assert peaks_of(memory(100, 900), memory(110, 900)) == peak(110, "sampled", 110)


def test_without_marks_the_largest_sample_is_the_peak() -> None:
    assert peaks_of(memory(100, None), memory(250, None), memory(90, None)) == peak(
        250, "sampled", 250
    )


def test_a_childs_mark_is_added_to_the_memory_of_the_other_processes() -> None:
    assert peaks_of(memory(100, 100, (7, 50, 50)), memory(105, 105, (7, 50, 550))) == peak(
        650, "sampled", 105
    )


def test_the_smaller_memory_of_the_other_processes_at_two_readings_is_added() -> None:
    assert peaks_of(memory(400, 400, (7, 50, 50)), memory(100, 400, (7, 50, 300))) == peak(
        450, "sampled", 400
    )


def test_the_present_memory_of_the_others_is_added_if_a_process_is_at_its_mark() -> None:
    start = memory(100, 100)
    assert peaks_of(start, memory(104, 104, (7, 500, 500)), memory(104, 104)) == peak(
        604, "sampled", 104
    )
    start = memory(100, 100, (7, 50, 50))
    assert peaks_of(start, memory(600, 600, (7, 54, 54)), memory(100, 600, (7, 54, 54))) == peak(
        654, "sampled", 600
    )


def test_the_mark_of_a_new_child_counts() -> None:
    assert peaks_of(memory(100, 100), memory(100, 100, (7, 20, 500))) == peak(600, "sampled", 100)


def test_the_mark_that_a_child_had_before_the_step_does_not_count() -> None:
    assert peaks_of(memory(100, 100, (7, 20, 500)), memory(100, 100, (7, 30, 500))) == peak(
        130, "sampled", 100
    )


def test_the_mark_of_reaped_children_counts_if_it_rose() -> None:
    assert peaks_of(memory(100, 100), memory(100, 100, reaped=500, faults=9)) == peak(
        600, "sampled", 100
    )


def test_the_mark_of_children_reaped_before_the_step_does_not_count() -> None:
    assert peaks_of(memory(100, 100, reaped=500), memory(101, 101, reaped=500)) == peak(
        101, "kernel", 101
    )


def test_a_peak_is_not_said_to_be_the_kernels_if_a_child_may_have_lived_meanwhile() -> None:
    for between in (
        (memory(100, 600, (7, 1, 1)),),  # it was read
        (memory(100, 600, faults=9),),  # it was waited for
        (memory(100, 600, faults=None),),  # it is a zombie, or could have ended unnoticed
        (memory(100, 600), memory(100, 600, faults=9), memory(100, 600, faults=9)),
    ):
        expected = peak(600, "sampled", 600)
        assert peaks_of(memory(100, 100), *between, memory(100, 600)) == expected
    # One that had ended before the step says nothing about the step.
    before = memory(100, 100, faults=9)
    assert peaks_of(before, memory(100, 600, faults=9)) == peak(600, "kernel", 600)


def test_a_process_tree_that_cannot_be_read_has_no_peak() -> None:
    assert peaks_of(None, None) == Peaks()


def test_a_reading_without_memory_does_not_change_the_peak() -> None:
    assert peaks_of(memory(100, 100), None, memory(100, 300)) == peak(300, "kernel", 300)


def test_after_a_reset_a_mark_below_an_earlier_one_counts() -> None:
    tracker = tracker_from(reading(memory(100, 900)))
    lower(tracker, memory(100, 900))
    tracker.fold(reading(memory(100, 300)))
    assert tracker.result() == peak(300, "kernel", 300)


def test_after_a_reset_a_mark_that_does_not_rise_is_an_exact_peak() -> None:
    tracker = tracker_from(reading(memory(100, 900)))
    lower(tracker, memory(100, 900))
    tracker.fold(reading(memory(100, 100)))
    assert tracker.result() == peak(100, "kernel", 100)


def test_a_reset_in_an_inner_step_keeps_the_peak_of_the_outer_step() -> None:
    outer = tracker_from(reading(memory(100, 100)))
    outer.fold(reading(memory(100, 600)))
    lower(outer, memory(100, 600))
    outer.fold(reading(memory(100, 200)))
    assert outer.result() == peak(600, "kernel", 600)


def test_after_a_reset_the_lowered_mark_of_a_child_counts_when_it_rises() -> None:
    before = memory(100, 100, (7, 50, 800))
    tracker = tracker_from(reading(before))
    lower(tracker, before, frozenset({7}))
    tracker.fold(reading(memory(100, 100, (7, 50, 400))))
    assert tracker.result() == peak(500, "sampled", 100)


def test_after_a_reset_a_childs_mark_that_was_not_lowered_does_not_count() -> None:
    before = memory(100, 100, (7, 50, 800))
    tracker = tracker_from(reading(before))
    lower(tracker, before)
    tracker.fold(reading(memory(100, 100, (7, 50, 800))))
    assert tracker.result() == peak(150, "sampled", 100)


def test_gpus_have_a_peak_of_the_sum_and_a_peak_of_each_device() -> None:
    def gpu(index: int, used: int, own: int | None) -> GpuReading:
        return GpuReading(index=index, id=f"GPU-{index}", name=None, used=used, process_used=own)

    tracker = tracker_from(reading(None, gpu(0, 10, 1), gpu(1, 20, None)))
    tracker.fold(reading(None, gpu(0, 30, 5), gpu(1, 5, None)))
    tracker.fold(reading(None, gpu(0, 15, 9), gpu(1, 15, None)))
    assert tracker.result() == Peaks(
        {"gpu.memory": 35},
        devices={"gpu": {0: {"memory": 30, "process_memory": 9}, 1: {"memory": 20}}},
    )


def ordered(order: int, of: MemoryReading) -> Reading:
    return Reading(0, 0, {"memory": of}, order)


def test_a_step_begins_with_the_newest_reading_although_an_older_one_comes_late() -> None:
    figures = Ongoing(RESOURCES)
    figures.begin(ordered(1, memory(100, 100)))
    newest = ordered(3, memory(500, 500))
    assert figures.fold(newest) is newest
    late = figures.begin_step(ordered(2, memory(200, 200)))
    assert (figures.latest, late.result()) == (newest, peak(500, "kernel", 500))


def test_a_report_begins_to_count_anew_and_the_run_goes_on() -> None:
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
