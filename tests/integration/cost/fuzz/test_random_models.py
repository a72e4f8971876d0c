"""Whatever model costing is given: a result or one clear error, soon, within 1 GiB."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import onnx
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.integration.cost.fuzz.conftest import Limited
from tests.integration.cost.fuzz.random_models import RandomModel

BACKEND_DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"
MANY = settings(
    max_examples=300,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@cache
def real_models() -> tuple[Path, ...]:
    """The models that onnx tests its operators with."""
    found = sorted(BACKEND_DATA.rglob("model.onnx"))
    assert len(found) > 1000
    return tuple(found)


def check(answer: dict[str, object], folder: Path) -> None:
    outcome = answer["outcome"]
    assert outcome in ("cost", "error"), answer
    if outcome == "cost":
        assert answer["wrong"] == []
    else:
        message = answer["message"]
        assert isinstance(message, str)
        assert message.isprintable(), message
        assert len(message) < 2000
    opened = answer["opened"]
    assert isinstance(opened, list)
    outside = [path for path in opened if not Path(path).resolve().is_relative_to(folder.resolve())]
    assert outside == []


Edit = tuple[int, str, bytes]
edits = st.lists(
    st.tuples(
        st.integers(0, 1 << 16),
        st.sampled_from(("replace", "insert", "delete", "cut")),
        st.one_of(
            st.binary(min_size=1, max_size=12),
            st.sampled_from(
                (
                    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
                    b"\xff\xff\xff\xff\x0f",
                    b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x00",
                    b"\x00",
                )
            ),
        ),
    ),
    min_size=1,
    max_size=6,
)


def edited(data: bytes, changes: list[Edit]) -> bytes:
    for position, how, content in changes:
        at = position % (len(data) + 1)
        if how == "cut":
            data = data[:at]
        elif how == "delete":
            data = data[:at] + data[at + len(content) :]
        else:
            data = data[:at] + content + data[at + (len(content) if how == "replace" else 0) :]
    return data


@MANY
@given(st.integers(0, 1 << 30), edits, st.sampled_from(("corrected", "onnx_tool")), st.booleans())
def test_a_real_model_with_bytes_changed_is_a_result_or_an_error(
    limited: Limited, tmp_path: Path, which: int, changes: list[Edit], rules: str, sparsity: bool
) -> None:
    models = real_models()
    path = tmp_path / "model.onnx"
    path.write_bytes(edited(models[which % len(models)].read_bytes(), changes))
    check(limited.cost(path, rules=rules, sparsity=sparsity), tmp_path)


@MANY
@example(seed=1153231, rules="corrected", sparsity=False)  # fewer inputs than the operator has
@example(seed=10000, rules="corrected", sparsity=False)  # an If without its condition
@given(st.integers(0, 1 << 62), st.sampled_from(("corrected", "onnx_tool")), st.booleans())
def test_a_graph_that_breaks_every_contract_is_a_result_or_an_error(
    limited: Limited, tmp_path: Path, seed: int, rules: str, sparsity: bool
) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(RandomModel(seed).model().SerializeToString())
    check(limited.cost(path, rules=rules, sparsity=sparsity), tmp_path)


@MANY
@given(st.binary(max_size=300))
@example(b"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\x7f")
def test_any_bytes_are_an_error_or_an_empty_model(
    limited: Limited, tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    check(limited.cost(path), tmp_path)


def test_all_test_models_of_onnx_are_costed(limited: Limited) -> None:
    outcomes = {path: limited.cost(path) for path in real_models()}

    for path, answer in outcomes.items():
        check(answer, path.parent)
    assert {path: a for path, a in outcomes.items() if a["outcome"] != "cost"} == {}
