"""The local file of programs that quantize, beside what Quark's own profiler writes of them."""

from __future__ import annotations

import pytest

from otel_quant import audit
from otel_quant.recordings.profile_reader import parse
from tests.fixtures.programs import steps_in
from tests.integration.export.test_quark_file import shape
from tests.integration.quark.conftest import QuarkRun

pytestmark = pytest.mark.quark


@pytest.fixture(params=["onnx", "torch"])
def pair(request: pytest.FixtureRequest) -> tuple[QuarkRun, QuarkRun]:
    """A program with both profilers on and ours strict; the same without us."""
    beside, alone = {
        "onnx": ("onnx_run", "onnx_quark_alone"),
        "torch": ("torch_run", "torch_quark_alone"),
    }[request.param]
    return request.getfixturevalue(beside), request.getfixturevalue(alone)


GROWTH = "peak_cache_dir_disk_usage_mb: AS IT IS"
"""Quark writes it if one of its looks, once a second, came in time; ours looks at checkpoints too."""


def test_the_strict_file_equals_quarks_line_by_line(pair: tuple[QuarkRun, QuarkRun]) -> None:
    beside, alone = pair
    ours = shape(beside.cwd / "quark_profile.otel.yaml")

    for run in (alone, beside):
        quarks = shape(run.cwd / "quark_profile.yaml")
        if GROWTH in ours and GROWTH not in quarks:
            assert ours.count(GROWTH) == 1
            quarks.insert(ours.index(GROWTH), GROWTH)
        assert ours == quarks


def test_otel_quant_does_not_change_quarks_own_file_and_reads_it_completely(
    pair: tuple[QuarkRun, QuarkRun],
) -> None:
    beside, alone = pair

    def definitions(run: QuarkRun) -> str:
        text = (run.cwd / "quark_profile.yaml").read_text()
        return text[text.index("# Metric Definitions") :]

    assert sorted(path.name for path in beside.cwd.glob("*.yaml")) == [
        "quark_profile.otel.yaml",
        "quark_profile.yaml",
    ]
    steps = steps_in(beside.cwd / "quark_profile.yaml")
    assert steps == steps_in(alone.cwd / "quark_profile.yaml")
    profile = parse((alone.cwd / "quark_profile.yaml").read_text())
    assert profile.complete
    assert [record["step"] for record in profile.records] == steps
    assert definitions(beside) == definitions(alone)


def test_the_quantized_models_are_the_same_bit_for_bit_with_and_without_us(
    pair: tuple[QuarkRun, QuarkRun],
) -> None:
    with_us, without = ({
        path.relative_to(run.out): path.read_bytes()
        for path in sorted(run.out.rglob("*"))
        if path.suffix in (".onnx", ".safetensors")
    } for run in pair)  # fmt: skip

    assert with_us.keys() == without.keys()
    assert len(with_us) >= 3
    assert [name for name in with_us if with_us[name] != without[name]] == []


def test_what_quark_exports_passes_an_audit(torch_run: QuarkRun) -> None:
    answers = {name: audit(torch_run.out / name).answer for name in ("safetensors", "files")}
    assert [each.startswith("as configured: ") for each in answers.values()] == [True, True], (
        answers
    )
