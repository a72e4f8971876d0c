"""What libraries write passes; each planted fault is found, and named."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from otel_quant.auditing.audit import audit
from otel_quant.auditing.checkpoint import AuditError
from otel_quant.cli import main
from tests.fixtures.checkpoints import Tensors, real, tensors, write_tensors

UP: Final = "model.layers.2.mlp.up_proj"


@pytest.mark.parametrize("is_sharded", [False, True], ids=["one file", "shards"])
@pytest.mark.parametrize("name", real())
def test_what_a_library_writes_passes(name: str, is_sharded: bool, tmp_path: Path) -> None:
    found = audit(tensors(name).write(tmp_path, is_sharded=is_sharded))
    assert found.answer.startswith("as configured: "), found.problems
    assert found.passed
    assert len(found.of_state("quantized")) >= 6


def left_in_float(made: Tensors, *layers: str, suffixes: tuple[str, ...] = ("",)) -> None:
    """Puts layers back that are not quantized."""
    for layer in layers:
        made.take(*(name for name in made.rows if name.startswith(f"{layer}.")))
        made.put(f"{layer}.weight", "BF16", [256, 128])


def float_layer(made: Tensors) -> None:
    left_in_float(made, UP)


def all_up_projections(made: Tensors) -> None:
    left_in_float(made, *(f"model.layers.{at}.mlp.up_proj" for at in range(4)))


def nothing_quantized(made: Tensors) -> None:
    for name in [each.removesuffix(".qweight") for each in made.rows if each.endswith(".qweight")]:
        left_in_float(made, name)


def written_twice(made: Tensors) -> None:
    made.put(f"{UP}.weight", "BF16", [256, 128])


def without_a_layer(made: Tensors) -> None:
    made.take(*(name for name in made.rows if name.startswith("model.layers.2.")))


def without_the_last_layer(made: Tensors) -> None:
    made.take(*(name for name in made.rows if name.startswith("model.layers.3.")))


def without_a_module(made: Tensors) -> None:
    made.take(*(name for name in made.rows if name.startswith(UP)))


def tied(made: Tensors) -> None:
    made.config["tie_word_embeddings"] = True


def without_head(made: Tensors) -> None:
    made.take("lm_head.weight")


def without(ending: str) -> Callable[[Tensors], None]:
    return lambda made: made.take(f"{UP}.{ending}")


def scale(ending: str, data: bytes, at: int = 0) -> Callable[[Tensors], None]:
    def change(made: Tensors) -> None:
        dtype, shape, old = made.rows[f"{UP}.{ending}"]
        made.rows[f"{UP}.{ending}"] = dtype, shape, old[:at] + data + old[at + len(data) :]

    return change


def reshaped(ending: str, shape: list[int]) -> Callable[[Tensors], None]:
    return lambda made: made.put(f"{UP}.{ending}", made.rows[f"{UP}.{ending}"][0], shape)


def configured(*keys: str, value: Any) -> Callable[[Tensors], None]:
    def change(made: Tensors) -> None:
        found = made.config["quantization_config"]
        for key in keys[:-1]:
            found = found[key]
        found[keys[-1]] = value

    return change


PLANTED: Final[dict[str, tuple[str, Callable[[Tensors], None], str]]] = {
    # GPTQ
    "a layer in float": (
        "gptq4",
        float_layer,
        f"forgotten {UP} is BF16, and others like it are int4",
    ),
    "a kind of layers in float": (
        "awq_auto",
        all_up_projections,
        "forgotten model.layers.*.mlp.up_proj (4) is BF16, and the configuration does not leave it out",
    ),
    "nothing quantized": (
        "gptq4",
        nothing_quantized,
        "forgotten the model has no quantized layer; its configuration asks for gptq",
    ),
    "no second scale": (
        "mo_nvfp4",
        without("weight_scale_2"),
        f"missing {UP} has no weight_scale_2",
    ),
    "codes and floats": ("gptq4", written_twice, f"doubled {UP} is int4, and BF16 as well"),
    "a layer missing": (
        "gptq4",
        without_a_layer,
        "missing model.layers.2 is not there, and others like it are",
    ),
    "the last layer missing": (
        "gptq4",
        without_the_last_layer,
        "missing model.layers.3 is not there, and others like it are",
    ),
    "a module missing": (
        "gptq4",
        without_a_module,
        f"missing {UP} is not there, and others like it are",
    ),
    "tied and written": (
        "gptq4",
        tied,
        "doubled lm_head is tied to the embedding, and written as well",
    ),
    "no head": (
        "gptq4",
        without_head,
        "missing lm_head is not there, and is not tied to the embedding",
    ),
    "no scales": ("gptq4", without("scales"), f"missing {UP} has no scales"),
    "no zero points": ("gptq8", without("qzeros"), f"missing {UP} has no qzeros"),
    "scales without codes": ("gptq4", without("qweight"), f"missing {UP} has scales, and no codes"),
    "a NaN": (
        "gptq4",
        scale("scales", b"\x00\x7e"),
        f"scale {UP}.scales has NaN values: 1 of 1,024",
    ),
    "infinite": (
        "gptq4",
        scale("scales", b"\x00\x7c" * 2, 64),
        f"scale {UP}.scales has infinite values: 2 of 1,024",
    ),
    "zero": ("gptq4", scale("scales", bytes(2048)), f"scale {UP}.scales has zero values: all"),
    "denormal": (
        "gptq4",
        scale("scales", b"\x03\x00"),
        f"scale {UP}.scales has denormal values: 1 of 1,024",
    ),
    "bits of GPTQ": (
        "gptq4",
        configured("bits", value=8),
        "configuration model.layers.*.mlp.down_proj (4) has 4 bits, and 8 in the configuration",
    ),
    "groups of GPTQ": (
        "gptq4",
        configured("group_size", value=64),
        "configuration model.layers.*.mlp.down_proj (4) has groups of 32, and of 64 in the configuration",
    ),
    "codes too short": ("gptq4", reshaped("qweight", [15, 256]), f"shape {UP} "),
    "an index too long": (
        "gptq8",
        reshaped("g_idx", [129]),
        f"shape {UP} g_idx is 129 where 128 is expected",
    ),
    "no quantization_config": (
        "gptq4",
        lambda made: made.config.pop("quantization_config"),
        "configuration config.json has no quantization_config, and 28 layers quantized",
    ),
    # AWQ
    "left out and quantized": (
        "awq_auto",
        configured("modules_to_not_convert", value=["up_proj"]),
        "configuration model.layers.*.mlp.up_proj (4) is int4, and the configuration leaves it out",
    ),
    "scales too short": (
        "awq_auto",
        reshaped("scales", [4, 200]),
        f"shape {UP} scales is 4x200 where 4x256 is expected",
    ),
    "bits of AWQ": (
        "awq_auto",
        configured("bits", value=8),
        "configuration model.layers.*.mlp.down_proj (4) has 4 bits, and 8 in the configuration",
    ),
    # compressed-tensors
    "a float layer of compressed-tensors": (
        "ct_w4a16asym",
        float_layer,
        f"forgotten {UP} is BF16, and others like it are int4",
    ),
    "bits of compressed-tensors": (
        "ct_w4a16asym",
        configured("config_groups", "group_0", "weights", "num_bits", value=8),
        "configuration model.layers.*.mlp.down_proj (4) has 4 bits, and 8 in the configuration",
    ),
    "a NaN of FP8": (
        "ct_nvfp4",
        scale("weight_scale", b"\x7f"),
        f"scale {UP}.weight_scale has NaN values: 1 of 2,048",
    ),
    "integers for floats": (
        "ct_fp8dyn",
        configured("config_groups", "group_0", "weights", "type", value="int"),
        "configuration model.layers.*.mlp.down_proj (4) is fp8, and int8 in the configuration",
    ),
    # ModelOpt
    "a float layer of ModelOpt": (
        "mo_fp8",
        float_layer,
        f"forgotten {UP} is BF16, and others like it are fp8",
    ),
    "no scale of ModelOpt": (
        "mo_nvfp4",
        without("weight_scale"),
        f"missing {UP} has no weight_scale",
    ),
    "an infinite scale of ModelOpt": (
        "mo_fp8",
        scale("weight_scale", struct.pack("<f", float("inf"))),
        f"scale {UP}.weight_scale has infinite values: all",
    ),
    # Quark
    "a float layer of Quark": (
        "q_int4g",
        float_layer,
        f"forgotten {UP} is BF16, and others like it are int4",
    ),
    "groups of Quark": (
        "q_int4g",
        configured("global_quant_config", "weight", "group_size", value=128),
        "configuration model.layers.*.mlp.down_proj (4) has groups of 32, and of 128 in the configuration",
    ),
    "zero points of Quark": (
        "q_int4g",
        reshaped("weight_zero_point", [4, 31]),
        f"shape {UP} weight_zero_point is 4x31 where 4x32 is expected",
    ),
    "scales of MXFP4": (
        "q_mxfp4",
        reshaped("weight_scale", [256, 3]),
        f"shape {UP} weight_scale is 256x3 where 256x4 is expected",
    ),
    # torchao
    "a float layer of torchao": (
        "ao_int8",
        float_layer,
        f"forgotten {UP} is BF16, and others like it are int8",
    ),
    "no scale of torchao": (
        "ao_int8",
        without("_weight_scale"),
        f"missing {UP} has no _weight_scale",
    ),
    "a zero scale of torchao": (
        "ao_fp8",
        scale("_weight_scale", bytes(4)),
        f"scale {UP}._weight_scale has zero values: 1 of 256",
    ),
    # bitsandbytes
    "no quant_state": (
        "bnb_nf4",
        without("weight.quant_state.bitsandbytes__nf4"),
        f"missing {UP} has no weight.quant_state",
    ),
    "a float layer of bitsandbytes": (
        "bnb_nf4",
        float_layer,
        f"forgotten {UP} is BF16, and others like it are nf4",
    ),
    "scales of bitsandbytes": (
        "bnb_8",
        reshaped("SCB", [255]),
        f"shape {UP} SCB is 255 where 256 is expected",
    ),
    "codes of bitsandbytes": (
        "bnb_nf4",
        reshaped("weight", [16000, 1]),
        f"shape {UP} weight is 16000x1 where 16384 is expected",
    ),
}


def lines(found: Any) -> list[str]:
    return [f"{each.kind} {each.where} {each.what}" for each in found.problems]


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_found(name: str, tmp_path: Path) -> None:
    base, change, expected = PLANTED[name]
    made = tensors(base)
    change(made)
    found = audit(made.write(tmp_path))
    assert not found.passed
    assert [line for line in lines(found) if line.startswith(expected)], lines(found)
    by_kind = {each.kind for each in found.problems}
    assert by_kind == {expected.split()[0]}, lines(found)  # nothing else is said to be wrong


def shards(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.safetensors"))


def edited_index(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        path = folder / "model.safetensors.index.json"
        index = json.loads(path.read_text())
        change(index)
        path.write_text(json.dumps(index))

    return edit


def edited_header(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        data = shards(folder)[0].read_bytes()
        length = struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8 : 8 + length])
        change(header)
        text = json.dumps(header).encode()
        shards(folder)[0].write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length :])

    return edit


def truncated(folder: Path) -> None:
    os.truncate(shards(folder)[1], shards(folder)[1].stat().st_size - 100)


def cut_in_the_header(folder: Path) -> None:
    os.truncate(shards(folder)[0], 200)


def longer(folder: Path) -> None:
    with shards(folder)[0].open("ab") as file:
        file.write(b"\0" * 10)


def removed(folder: Path) -> None:
    shards(folder)[1].unlink()


def of_another_run(folder: Path) -> None:
    made = tensors("gptq4").shards()[1]
    rows = {name.replace("layers.3", "layers.9"): row for name, row in made.items()}
    write_tensors(shards(folder)[1], rows)


def without_index(folder: Path) -> None:
    (folder / "model.safetensors.index.json").unlink()
    shards(folder)[0].unlink()


def twice(folder: Path) -> None:
    first, second = tensors("gptq4").shards()
    name = "model.layers.1.mlp.up_proj.scales"
    write_tensors(shards(folder)[1], second | {name: first[name]})


def beside_a_single_file(folder: Path) -> None:
    write_tensors(folder / "model.safetensors", tensors("gptq4").rows)


def emptied(name: str) -> Callable[[Path], None]:
    return lambda folder: os.truncate(folder / name, 0)


def shift(header: dict[str, Any]) -> None:
    header["model.layers.0.mlp.up_proj.scales"]["data_offsets"][1] += 2


FILES: Final[dict[str, tuple[Callable[[Path], None], str]]] = {
    "truncated": (
        truncated,
        "file model-00002-of-00002.safetensors is truncated: 100 B are missing at its end, with 1 tensor in them",
    ),
    "cut in the header": (
        cut_in_the_header,
        "file model-00001-of-00002.safetensors ends within its header",
    ),
    "bytes of no tensor": (
        longer,
        "file model-00001-of-00002.safetensors has 10 B at its end that belong to no tensor",
    ),
    "no shard": (
        removed,
        "file model-00002-of-00002.safetensors cannot be read: No such file or directory",
    ),
    "a shard of another run": (
        of_another_run,
        "shard model-00002-of-00002.safetensors is not the shard that the index was made with: 30 of its 63 tensors are not in the index",
    ),
    "no index, and a shard missing": (
        without_index,
        "missing the checkpoint lacks its index, and 1 shard of 2",
    ),
    "a tensor in two shards": (
        twice,
        "doubled model.layers.1.mlp.up_proj.scales is in two files of the checkpoint",
    ),
    "not in the index": (
        edited_index(lambda it: it["weight_map"].pop(f"{UP}.scales")),
        f"orphaned {UP}.scales is in model-00002-of-00002.safetensors, and not in the index",
    ),
    "in the index only": (
        edited_index(
            lambda it: it["weight_map"].update(
                {"model.layers.0.x": "model-00001-of-00002.safetensors"}
            )
        ),
        "missing model.layers.0.x is in the index, and not in model-00001-of-00002.safetensors",
    ),
    "a size of another": (
        edited_index(lambda it: it["metadata"].update(total_size=44_000_000)),
        "size model.safetensors.index.json has a total_size of 44.0 MB; the tensors take",
    ),
    "outside of the folder": (
        edited_index(lambda it: it["weight_map"].update(y="../../etc/passwd")),
        "file y is in the index, in a file outside of the folder",
    ),
    "wrong offsets": (
        edited_header(shift),
        "file model.layers.0.mlp.up_proj.scales has 2,050 bytes, and its shape takes 2,048",
    ),
    "a single file of another run": (
        beside_a_single_file,
        "doubled model.safetensors is beside the shards, and transformers loads it instead",
    ),
    "no configuration": (
        emptied("config.json"),
        "file config.json cannot be read: it is truncated, or no JSON",
    ),
    "an empty index": (
        emptied("model.safetensors.index.json"),
        "file model.safetensors.index.json has no weight_map that can be read",
    ),
    "no sense": (
        edited_header(
            lambda it: it.update(z={"dtype": "F16", "shape": [-1], "data_offsets": [0, 0]})
        ),
        "file z has an entry in the header without sense",
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_not_whole_is_found(name: str, tmp_path: Path) -> None:
    change, expected = FILES[name]
    folder = tensors("gptq4").write(tmp_path, is_sharded=True)
    change(folder)
    found = audit(folder)
    assert not found.passed
    assert [line for line in lines(found) if line.startswith(expected)], lines(found)


@pytest.mark.parametrize(
    ("hours", "notes"),
    [
        ([0, 0, 5, 1], ["note model-00003-of-00003.safetensors was written after the index, "]),
        ([2, 2, 2, 1], []),  # copied, the index first
        ([0, 5, 9, 9], []),  # written one after another
        ([0, 0, 1, 1], []),
    ],
)
def test_a_shard_that_alone_was_written_after_the_index_is_noted(
    hours: list[int], notes: list[str], tmp_path: Path
) -> None:
    folder = tensors("gptq4").write(tmp_path, is_sharded=True)
    names = list(tensors("gptq4").rows)
    edited_index(lambda it: it["metadata"].update(total_size=0))(folder)  # as AutoRound writes it
    placed = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    for at, path in enumerate(shards(folder), 1):
        path.rename(folder / f"model-{at:05}-of-00003.safetensors")
    rows = {"model.more.weight": ("BF16", [8, 8], bytes(128))}
    write_tensors(folder / "model-00003-of-00003.safetensors", rows)
    placed = {name: placed[name].replace("of-00002", "of-00003") for name in names}
    placed["model.more.weight"] = "model-00003-of-00003.safetensors"
    edited_index(lambda it: it.update(weight_map=placed))(folder)
    for path, hour in zip(
        [*shards(folder), folder / "model.safetensors.index.json"], hours, strict=True
    ):
        os.utime(path, (hour * 3600, hour * 3600))
    found = audit(folder)
    assert found.passed
    assert [line[: len(notes[0])] if notes else line for line in lines(found)] == notes


def test_modules_without_weights_between_others_are_not_missed(tmp_path: Path) -> None:
    made = tensors("gptq4")
    for at in (0, 2):  # an activation is between them
        made.put(f"visual.merger.mlp.{at}.weight", "BF16", [64, 64])
    made.take("model.layers.0.input_layernorm.weight")  # as ModernBERT has it
    assert audit(made.write(tmp_path)).passed


def test_what_the_float_model_has_must_be_there(tmp_path: Path) -> None:
    made, floats = tensors("gptq4"), Tensors()
    for name in [each.removesuffix(".qweight") for each in made.rows if each.endswith(".qweight")]:
        floats.put(
            f"{name}.weight",
            "BF16",
            [made.rows[f"{name}.qweight"][1][1], made.rows[f"{name}.g_idx"][1][0]],
        )
    floats.put("model.layers.0.mlp.gate.weight", "BF16", [8, 128])
    floats.put(f"{UP}.weight", "BF16", [256, 64])
    floats.put("model.layers.0.mlp.experts.up.weight", "BF16", [8, 256, 128])
    made.put("model.layers.0.mlp.experts.0.up.weight", "BF16", [256, 128])  # laid out anew
    made.config["quantization_config"]["dynamic"] = {"-:.*experts": {}}
    found = audit(made.write(tmp_path / "made"), floats.write(tmp_path / "floats"))
    assert lines(found) == [
        "missing model.layers.0.mlp.gate is in the float model, and not here",
        f"shape {UP} has 32,768 weights, and 256x64 in the float model",
    ]
    another = Tensors()
    another.put("encoder.0.weight", "BF16", [64, 64])
    other = audit(made.write(tmp_path / "made"), another.write(tmp_path / "another"))
    assert lines(other) == [
        "configuration the model lacks most layers of the float model: it is another"
    ]


def nested(depth: int) -> bytes:
    return b'{"a":' * depth + b"1" + b"}" * depth


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (
            struct.pack("<Q", 1 << 60),
            "is no safetensors file: its header would be of 1,152,921,504,606,846,976 bytes",
        ),
        (struct.pack("<Q", 4) + b"null", "has a header that makes no sense"),
        (struct.pack("<Q", 600_001) + nested(100_000), "has a header that makes no sense"),
        (b"", "ends within its header: it is truncated, or no safetensors file"),
        (
            struct.pack("<Q", 8_000_002) + b"[" + b"0," * 4_000_000 + b"]",
            "has a header that makes no sense",
        ),
        (struct.pack("<Q", 9_000_011) + b'{"a":[' + b"0," * 4_500_000 + b"0]}  ", "has an entry"),
    ],
)
def test_hostile_headers_are_refused(header: bytes, expected: str, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(header)
    found = audit(tmp_path)
    assert not found.passed
    assert expected in " ".join(lines(found))


def test_an_expression_that_would_take_for_ever_is_left_alone(tmp_path: Path) -> None:
    made = tensors("ct_w4a16asym")
    made.config["quantization_config"]["ignore"] += ["re:(m.*)*(o.*)*x", "re:("]
    assert audit(made.write(tmp_path)).passed


def test_an_unknown_layout_is_said_to_be_unknown(tmp_path: Path) -> None:
    made = tensors("gptq4")
    made.config["quantization_config"] = {"quant_method": "hqq", "bits": 4}
    found = audit(made.write(tmp_path))
    assert (found.passed, found.answer) == (
        False,
        "not audited: the layout 'hqq' is not known; 427 kB",
    )


def test_a_pickle_is_named_and_not_loaded(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    with pytest.raises(
        AuditError, match=r"pytorch_model\.bin may be a pickle, which is never loaded"
    ):
        audit(tmp_path)


@pytest.mark.parametrize("is_good", [True, False])
@pytest.mark.parametrize("form", ["table", "json", "html", "csv"])
def test_the_command_begins_with_the_verdict_and_exits_with_it(
    form: str, is_good: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = tensors("gptq4")
    if not is_good:
        float_layer(made)
    made.write(tmp_path)
    assert main(["audit", str(tmp_path), "--format", form]) == (0 if is_good else 1)
    out, answer = capsys.readouterr().out, audit(tmp_path).answer
    if form == "json":
        found = json.loads(out)
        assert (found["passed"], found["answer"], len(found["layers"])) == (is_good, answer, 29)
    elif form == "csv":
        row = f'{UP},forgotten,"is BF16, and others like it are int4"\n'
        assert out.replace("\r", "") == "where,kind,what\n" + row * (not is_good)
    else:
        assert out.startswith(f"{answer}.\n" if form == "table" else "<!DOCTYPE html>")
        assert answer in out
