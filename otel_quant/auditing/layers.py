"""The layers of a safetensors checkpoint: each against the configuration, its siblings, and the float model."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence, Set
from typing import Any, Final

from otel_quant.auditing.asked import AskedModel, AskedType, asked_of, integer
from otel_quant.auditing.checkpoint import Checkpoint, StoredTensor
from otel_quant.auditing.layouts import ALL_SCALES, FP8, SCALES, SUFFIXES, Fit, Tensors, fit
from otel_quant.auditing.results import AuditedLayer, Problems, pattern_of
from otel_quant.auditing.scales import pieces

_FLOATS: Final = ("BF16", "F16", "F32", "F64")
_EMBEDDINGS: Final = ("embed", "wte", "wpe")
_LEAST_SHARE: Final = {True: 0.05, False: 0.005}
"""Share of a block's weights from which on what is in float in each layer is no router, which have a tenth of this; more
for GPTQ, whose library has lists of its own of what it leaves out."""

_FEW: Final = 20  # One of so many, or a single one, may lack what all others have
_MOST_LAYERS: Final = 10_000
_MOST_STAGES: Final = 7  # Blocks of which the first and the last may be others: of a vision model
_BLOCKS: Final = (
    "model.layers",
    "decoder.layers",
    "transformer.h",
    "gpt_neox.layers",
    "encoder.layer",
)
"""How the names of what a configuration counts the blocks of may end; in a model of several parts the first alone."""

_KEPT: Final = ".DenseReluDense.wo"
"""The layers of T5 that transformers itself leaves in float, and of which the configuration has nothing."""
_LONGEST_STATE: Final = 4096  # Bytes of a small tensor that is read


def _split(name: str) -> tuple[str, str]:
    """Returns the module of a tensor, and what the tensor is in it; the whole name for what no form has."""
    module, _, suffix = name.partition(".weight.")  # of bitsandbytes
    suffix = f"weight.{suffix.partition('.')[0]}"
    if suffix == "weight.":
        module, _, suffix = name.rpartition(".")
    return (module, suffix) if suffix in SUFFIXES else (name, "")


def block_of(name: str) -> str:
    """Returns what stands before the first number of a name: ``model.layers.``."""
    return pattern_of(name).partition("*")[0]


class Siblings:
    """Tells what was left in float on purpose from what was forgotten."""

    def __init__(
        self, asked: AskedModel, add: Callable[[str, str, str], None], convolutions: Set[str]
    ) -> None:
        self._asked, self._add, self._convolutions = asked, add, convolutions
        self._types: dict[tuple[str, tuple[int, ...]], str] = {}
        self._sizes, self._counts = Counter[str](), Counter[str]()
        self._blocks: set[str] = set()
        self.excess = 0  # Bytes that would not be there if all were as asked for

    def sort(
        self, layers: Iterable[AuditedLayer], floats: Sequence[AuditedLayer]
    ) -> list[AuditedLayer]:
        """Returns the layers in float, those that were forgotten marked so."""
        for each in layers:
            self._types[pattern_of(each.name), each.shape] = each.type
            self._blocks.add(block_of(each.name))
            self._sizes[block_of(each.name)] += each.elements
            self._counts[pattern_of(each.name)] += 1
        for each in floats:
            for name in (block_of(each.name), pattern_of(each.name)):
                self._sizes[name] += each.elements
            self._counts[pattern_of(each.name)] += 1
        return [self._sorted(each) for each in floats]

    def _sorted(self, layer: AuditedLayer) -> AuditedLayer:
        asked, is_named = self._asked.of(layer.name)
        role, block = pattern_of(layer.name), block_of(layer.name)
        kin, method = self._types.get((role, layer.shape)), self._asked.method
        # What a single layer has alone is of another kind, as what predicts further tokens; few methods take convolutions.
        is_usual = self._counts[role] > 1 and layer.name not in self._convolutions
        is_inside = is_usual and block in self._blocks and method
        is_kept = method in ("bitsandbytes", "torchao", "fp8") and role.endswith(_KEPT)
        if is_kept or (asked is None and (method or is_named)):
            return layer
        if kin:
            what = f"is {layer.type}, and others like it are {kin}"
        elif is_named and asked is not None:
            what = f"is {layer.type}, and the configuration names it"
        elif is_inside and self._sizes[role] > _LEAST_SHARE[method == "gptq"] * self._sizes[block]:
            what = f"is {layer.type}, and the configuration does not leave it out"
        else:
            return layer
        self._add("forgotten", layer.name, what)
        bits = asked.bits if asked is not None and asked.bits else 8
        self.excess += layer.bytes - layer.elements * bits // 8
        return layer._replace(state="forgotten")


class CheckpointLayers:
    """The layers of a checkpoint."""

    def __init__(self, checkpoint: Checkpoint, left_out: Iterable[str], problems: Problems) -> None:
        self.asked, self.bytes = asked_of(checkpoint.quantization, left_out), checkpoint.bytes
        self._add = (problems if self.asked.known else Problems()).add
        self.config = checkpoint.config
        self._of: dict[str, dict[str, StoredTensor]] = defaultdict(dict)
        self.scales: list[StoredTensor] = []
        self.excess = 0  # Bytes that would not be there if all were as asked for
        for name, tensor in checkpoint.tensors.items():
            module, suffix = _split(name)
            self._of[module][suffix] = tensor
            self.scales += [tensor] * (suffix in ALL_SCALES)
        self._fits: dict[str, Fit] = {}
        self.layers: list[AuditedLayer] = []
        floats = []
        for name, tensors in self._of.items():
            if (found := self._quantized(name, tensors)) is not None:
                self.layers.append(found)
            elif (found := _in_float(name, tensors)) is not None:
                floats.append(found)
        weights = {name: it["weight"] for name, it in self._of.items() if "weight" in it}
        convolutions = {name for name, it in weights.items() if len(it.shape) > 2}
        siblings = Siblings(self.asked, self._add, convolutions)
        self.layers += siblings.sort(tuple(self.layers), floats)
        self.excess += siblings.excess
        self._find_lacking()
        self._find_missing()
        self._find_tied()

    def _quantized(self, name: str, tensors: Tensors) -> AuditedLayer | None:
        """Returns a layer that is quantized, and adds what is wrong with it."""
        asked, _ = self.asked.of(name)
        known, group = _read_inside(tensors)
        bits, wanted = (0, 0) if asked is None else asked[:2]
        found = fit(tensors, self.asked.method, bits, group or wanted, known)
        weight = tensors.get("weight")
        if found is None:
            if not SCALES.isdisjoint(tensors):
                what = f"has scales, and {'no codes' if weight is None else f'is {weight.dtype}'}"
                self._add("note" if self.asked.is_fake else "missing", name, what)
                self.layers += [AuditedLayer(name, "missing")] * (weight is None)
            return None
        lacking = found.form.scales.keys() - tensors.keys()
        for suffix in lacking:
            self._add("missing", name, f"has no {suffix}")
        for misfit in () if lacking else found.misfits:
            self._add("shape", name, misfit)
        self._fits[name] = found
        type_ = _type_of(found, tensors, bits)
        if found.form.codes != "weight" and weight is not None:
            self._add("doubled", name, f"is {type_}, and {weight.dtype} as well")
            self.excess += weight.size
        is_whole = self.asked.method and not found.misfits and not lacking
        if is_whole and (what := self._unlike(asked, found, type_)):
            self._add("configuration", name, what)
        own, shape = sum(each.size for each in tensors.values()), (found.outputs, found.inputs)
        return AuditedLayer(name, "quantized", type_, shape, found.elements, own)

    def _unlike(self, asked: AskedType | None, found: Fit, type_: str) -> str:
        """Returns how a layer is not what the configuration asks for; empty if it is."""
        if asked is None:
            return f"is {type_}, and the configuration leaves it out"
        kind = "int" if type_.startswith("int") else "float"
        bits, group = found.bits, found.group or found.inputs
        if asked.bits and asked.bits != bits and found.form.codes != "_weight_qdata":
            self.excess += found.elements * (bits - asked.bits) // 8
            return f"has {bits} bits, and {asked.bits} in the configuration"
        if asked.kind and asked.kind != kind:
            return f"is {type_}, and {asked.kind}{asked.bits} in the configuration"
        if asked.group and min(asked.group, found.inputs) != group:
            return f"has groups of {group}, and of {asked.group} in the configuration"
        return ""

    def _find_lacking(self) -> None:
        """Finds layers without a tensor that all similar layers have beside their codes: a second scale, or one of the inputs."""
        alike = defaultdict[tuple[str, str], list[str]](list)
        for each in self.layers:
            if each.name in self._fits:
                alike[pattern_of(each.name), each.type].append(each.name)
        for names in alike.values():
            counts = Counter(suffix for name in names for suffix in self._of[name])
            few = max(1, len(names) // _FEW) if len(names) > 2 else 0
            for suffix in [it for it, count in counts.items() if 0 < len(names) - count <= few]:
                for name in names:
                    if suffix not in {*self._of[name], *self._fits[name].form.scales}:
                        self._add("missing", name, f"has no {suffix}")

    def _find_missing(self) -> None:
        """Finds blocks whose number is left out, and blocks that lack what almost all others have."""
        alike = defaultdict[str, list[str]](list)
        children = _children(each.name for each in self.layers)
        for parent, own in children.items():
            alike[pattern_of(parent)].append(parent)
            # Single modules have gaps where there is nothing to store: an activation.
            digits = (it for it in own if it.isdigit() and len(it) < 6)
            blocks = [it for it in digits if f"{parent}.{it}" in children]
            numbers = set(map(int, blocks))
            if parent and len(numbers) > 1 and len(numbers) == len(own):
                for number in sorted(set(range(self._count(parent, numbers))) - numbers):
                    self._missing(f"{parent}.{number}")
        for parents in alike.values():
            usual, count = Counter(frozenset(children[it]) for it in parents).most_common(1)[0]
            ordered = sorted(parents, key=lambda it: (len(it), it))
            between = ordered if len(parents) > _MOST_STAGES else ordered[1:-1]
            odd = [each for each in between if children[each] < usual and each]
            if count > 1 and len(odd) <= max(1, len(parents) // _FEW):
                for parent, child in ((it, child) for it in odd for child in usual - children[it]):
                    self._missing(f"{parent}.{child}")

    def _count(self, parent: str, numbers: set[int]) -> int:
        """Returns how many blocks there should be, by the last one or the configuration."""
        inner = self.config.get("text_config")
        text, places = (inner, _BLOCKS[:1]) if isinstance(inner, dict) else (self.config, _BLOCKS)
        count = text.get("num_hidden_layers", text.get("n_layer"))
        # What encodes and decodes has two numbers.
        is_main = parent.endswith(places) and self.config.get("is_encoder_decoder") is not True
        return min(max(max(numbers), count if type(count) is int and is_main else 0), _MOST_LAYERS)

    def _missing(self, name: str, what: str = "is not there, and others like it are") -> None:
        self.layers.append(AuditedLayer(name, "missing"))
        self._add("missing", name, what)

    def _find_tied(self) -> None:
        """Finds an output layer that is the embedding and was written as well, or that is another and was not."""
        is_tied, kind = (self.config.get(it) for it in ("tie_word_embeddings", "architectures"))
        head, embedding = self._of.get("lm_head", {}), self._of.get("model.embed_tokens", {})
        weight, twin = head.get("weight"), embedding.get("weight")
        if is_tied is True and weight and twin and weight[1:3] == twin[1:3]:
            self._add("doubled", "lm_head", "is tied to the embedding, and written as well")
            self.excess += weight.size
        elif is_tied is False and twin and not head and "CausalLM" in str(kind):
            self._missing("lm_head", "is not there, and is not tied to the embedding")

    def compare(self, floats: Checkpoint, *, weights: bool = False) -> None:
        """Compares with the float model, by names and shapes, and by weights if that is asked for."""
        theirs = {_split(name)[0]: it for name, it in floats.tensors.items() if len(it.shape) > 1}
        ours, known, lacking = _children(self._of), _children(theirs), []
        for name in theirs.keys() - self._of.keys():
            parent = name
            while parent and parent not in ours:
                parent = parent.rpartition(".")[0]
            is_tied = name == "lm_head" and self.config.get("tie_word_embeddings")
            # Laid out anew, as experts are
            is_anew = parent and ours[parent].isdisjoint(known[parent])
            lacking += [name] * (not is_tied and not is_anew)
        if len(lacking) > len(theirs) / 2:
            what = "lacks most layers of the float model: it is another"
            self._add("configuration", "the model", what)
            return
        gone = tuple(each.name for each in self.layers if each.state == "missing")
        for name in sorted(lacking):
            if not f"{name}.".startswith(tuple(f"{each}." for each in gone)):
                self._missing(name, "is in the float model, and not here")
        for at, each in enumerate(self.layers):
            other, found = theirs.get(each.name), self._fits.get(each.name)
            if other is not None and found is not None and weights:
                from otel_quant.auditing.weights import sqnr

                method = "gptq_v2" if self.asked.is_second else self.asked.method
                error = sqnr(found, self._of[each.name], other, method)
                if error is not None and error <= 0:
                    what = "has other weights than the float model: SQNR is 0 dB or less"
                    self._add("configuration", each.name, what)
                self.layers[at] = each._replace(sqnr=error)
            if other is not None and each.elements not in (0, other.elements):
                shape = "x".join(map(str, other.shape))
                what = f"has {each.elements:,} weights, and {shape} in the float model"
                self._add("shape", each.name, what)


def _children(names: Iterable[str]) -> dict[str, set[str]]:
    """Returns what stands behind the beginnings of names."""
    found: dict[str, set[str]] = defaultdict(set)
    for name in names:
        words = name.split(".")
        for at, word in enumerate(words):
            found[".".join(words[:at])].add(word)
    return found


def _in_float(name: str, tensors: Tensors) -> AuditedLayer | None:
    """Returns a layer whose weights are floats; None for vectors and embeddings."""
    weight = tensors.get("weight") or tensors.get("")
    least = 2 if "weight" in tensors else 3  # experts have no ``weight`` in their name
    if weight is None or weight.dtype not in _FLOATS:
        return None
    if sum(length > 1 for length in weight.shape) < least:  # a token or a bias has one
        return None
    if any(each in name.rpartition(".")[2] for each in _EMBEDDINGS):
        return None
    shape = weight.shape[-2:]
    return AuditedLayer(name, "left out", weight.dtype, shape, weight.elements, weight.size)


def _read_inside(tensors: Tensors) -> tuple[tuple[int, int] | None, int]:
    """Returns outputs and inputs, and the weights with one scale, where a small tensor of the module has them."""
    state: Any = {}
    if (own := tensors.get("weight_shape")) is not None and own.size == 16:
        data = next(pieces(own), b"")
        state = {"shape": [int.from_bytes(data[at : at + 8], "little") for at in (0, 8)]}
    elif (own := tensors.get("weight.quant_state")) is not None and own.size < _LONGEST_STATE:
        try:
            state = json.loads(next(pieces(own), b""))
        except (ValueError, RecursionError):
            pass
    found = state if isinstance(state, dict) else {}
    shape, group = found.get("shape"), found.get("blocksize")
    numbers = shape if isinstance(shape, list) and len(shape) == 2 else [0, 0]
    outputs, inputs = map(integer, numbers)
    return ((outputs, inputs) if outputs and inputs else None), integer(group)


def _type_of(found: Fit, tensors: Tensors, asked_bits: int) -> str:
    """Returns what a weight is stored in."""
    codes, scale = tensors[found.form.codes].dtype, tensors.get("weight_scale")
    if codes in FP8:
        return "fp8"
    if (state := tensors.get("weight.quant_state")) is not None:
        return state.name.rpartition("__")[2][:8]
    if codes == "U8" and scale is not None and found.form.shape in ("o i2", "o i6"):
        return "nvfp4" if scale.dtype in FP8 else f"mxfp{found.bits}"
    is_unpacked = found.form.codes == "_weight_qdata"
    return f"int{asked_bits or found.bits}" if is_unpacked else f"int{found.bits}"
