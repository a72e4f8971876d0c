"""What helps against exceptions that are known, and nothing against others: each is raised for real."""

from __future__ import annotations

import multiprocessing
import pickle

import pytest

from otel_quant.launcher.known_errors import KNOWN_ERRORS, advice_on
from otel_quant.launcher.surroundings import Disk


def first_words(error: str) -> list[str]:
    return [" ".join(each.text.split()[:4]) for each in advice_on(error, ())]


def error_of(value: object) -> str:
    """Returns the error of pickling, as a recording has it."""
    with pytest.raises((pickle.PicklingError, AttributeError, TypeError)) as raised:
        multiprocessing.reduction.ForkingPickler.dumps(value)
    return f"{type(raised.value).__name__}: {raised.value}"


class Outer:
    class Hidden:
        pass


def test_what_cannot_be_pickled_has_advice() -> None:
    class Local:
        pass

    hidden = Outer.Hidden()
    Outer.Hidden.__qualname__ = "Gone"
    with open(__file__) as file:
        for value in (lambda: 1, Local(), hidden, (x for x in "a"), file):
            assert first_words(error_of(value)) == ["Give to other processes"], error_of(value)


GUARD = (
    "An attempt has been made to start a new process before the current process has finished its "
    "bootstrapping phase. This probably means"
)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (f"RuntimeError: {GUARD}", ["Put what starts the"]),
        ("Exception: Incomplete symbolic shape inference", ["Call quant_pre_process with skip_symbolic_shape=True:"]),
        ("ValueError: pickle", []),
        ("UnpicklingError: pickle data was truncated", []),
        ("", []),
    ],
)  # fmt: skip
def test_a_known_error_has_its_advice(error: str, expected: list[str]) -> None:
    assert first_words(error) == expected


def test_a_full_disk_has_advice_by_what_is_on_it() -> None:
    full = (
        Disk("temporary files, shared memory", 0, 30_000_000),
        Disk("the current folder", 4096, 9_000_000),
        Disk("shared memory", 0, 64_000_000),
    )
    assert [each.text for each in advice_on("", full)] == [
        "Set TMPDIR to a folder on a disk with more room than 30.0 MB, which temporary files have now.",
        "Write to a disk with more room, or make some: the current folder had 4.10 kB of 9.00 MB.",
        "Give shared memory (/dev/shm) more room than 64.0 MB: docker run --shm-size, Kubernetes an emptyDir with medium Memory.",
    ]
    (found,) = advice_on("RuntimeError: Caught RuntimeError in DataLoader worker", full[2:])
    assert found.text.endswith(
        "Or load samples with num_workers=0, fewer workers or smaller batches: workers hand over their batches in it."
    )


def test_every_known_error_names_its_source() -> None:
    assert all(each.source for each in KNOWN_ERRORS)
