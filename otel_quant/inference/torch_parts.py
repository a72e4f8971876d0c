"""The parts of a PyTorch model: its modules, with ranges around them while they run, and its operators.

A hook of a module would be seen by the module: torch's own transformer layers run other kernels then.
Hooks of all modules are not, and what is compiled gets none. What is known of operators is known by
their names, as torch's profiler has them.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any, Final, TypeAlias

from otel_quant.cost.graph import printable

Enter: TypeAlias = Callable[[str], Callable[[], object]]
"""Begins a range of a path and returns what ends it."""

_ORIGINAL: Final = "_orig_mod"  # Name of the module within a compiled one
_INSERTED: Final = re.compile(r"quantize(?!d)")  # In the name of what quantizes or dequantizes
_SELF: Final = re.compile(r"^L\['self'\]\.?|^L__self___|^self\.?")


def in_quotes(path: str) -> str:
    """Returns a path as it may stand in a line, and in the JSON that torch writes without escapes."""
    return json.dumps(path)[1:-1]


def path_in(text: str) -> str:
    """Returns the path of what :func:`in_quotes` has made."""
    return str(json.loads(f'"{text}"'))


def module_paths(model: Any) -> Mapping[str, Any]:
    """Returns the modules of a model by path, less those that are within a compiled one."""
    import torch

    if not isinstance(model, torch.nn.Module):
        return {}
    modules = dict(model.named_modules())
    compiled = [name for name, module in modules.items() if is_compiled(module)]
    if "" in compiled:
        return {}
    within = tuple(f"{name}." for name in compiled)
    return {name: module for name, module in modules.items() if not name.startswith(within)}


def is_compiled(module: Any) -> bool:
    """Whether a module is one that torch.compile has made, or that is compiled in place."""
    return hasattr(module, _ORIGINAL) or getattr(module, "_compiled_call_impl", None) is not None


class _OpenRanges:
    """The ranges of modules that run, in the thread that has made this."""

    def __init__(self, modules: Mapping[str, Any], enter: Enter) -> None:
        self._paths = {id(module): path for path, module in modules.items()}
        self._enter = enter
        self._thread = threading.get_ident()
        self._open: list[tuple[int, Callable[[], object]]] = []

    def _has(self, module: Any) -> bool:
        """Whether a module has ranges where this is called."""
        return id(module) in self._paths and threading.get_ident() == self._thread

    def begin(self, module: Any, _: Any) -> None:
        """Begins the range of a module."""
        if self._has(module):
            self._open.append((id(module), self._enter(self._paths[id(module)])))

    def end(self, module: Any, *_: Any) -> None:
        """Ends the range of a module, and those within it that an error has left open."""
        at = None
        while self._open and self._has(module) and at != id(module):
            at, leave = self._open.pop()
            leave()

    def end_all(self) -> None:
        """Ends what is still open."""
        for _, leave in reversed(self._open):
            leave()


@contextmanager
def module_ranges(model: Any, enter: Enter) -> Iterator[None]:
    """Has a range begin and end with each module, or module that a node of a graph names, in the block."""
    import torch
    from torch.nn.modules import module as hooks

    modules = module_paths(model)
    if not modules:
        yield
        return
    ranges = _OpenRanges(modules, enter)
    begin, end = ranges.begin, ranges.end
    if "torch._dynamo" in sys.modules:  # it would compile the hooks
        hidden: Callable[[Any], Any] = torch.compiler.disable
        begin, end = hidden(begin), hidden(end)
    with ExitStack() as kept:
        if any(map(is_compiled, model.modules())):  # it warns of hooks
            kept.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")
        for path, module in modules.items():
            if isinstance(module, torch.fx.GraphModule):
                kept.enter_context(_node_ranges(path, module, enter))
        kept.callback(ranges.end_all)
        kept.callback(hooks.register_module_forward_hook(end, always_call=True).remove)
        kept.callback(hooks.register_module_forward_pre_hook(begin).remove)
        yield


@contextmanager
def _node_ranges(path: str, module: Any, enter: Enter) -> Iterator[None]:
    """Has a graph run node by node, each in a range of the module that it comes from."""
    import torch

    class Ranged(torch.fx.Interpreter):
        def run_node(self, n: Any) -> Any:
            origin = origin_of(n) if n.op in ("call_function", "call_method") else None
            with ExitStack() as kept:
                if origin is not None:
                    kept.callback(enter(".".join(filter(None, (path, origin)))))
                return super().run_node(n)

        def results(self, *args: Any) -> Any:
            """Runs the graph as ``run`` does, which would start a thread for a progress bar."""
            graph = module.graph
            self.args_iter = iter(graph.process_inputs(*args))
            for node in graph.nodes:
                self.env[node] = self.run_node(node)
                if node.op == "output":
                    return graph.process_outputs(self.env[node])
                for each in self.user_to_last_uses.get(node, ()):
                    del self.env[each]
            return None

    signature = inspect.signature(module.forward)

    def forward(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return Ranged(module).results(*bound.args)

    before = {name: value for name, value in vars(module).items() if name == "forward"}
    vars(module)["forward"] = forward
    try:
        yield
    finally:
        del vars(module)["forward"]
        vars(module).update(before)


def origin_of(node: Any) -> str | None:
    """Returns the path of a node's module; of an inserted node that quantizes, a neighbour's path.

    ``quantized.add_relu`` and the like stand for several nodes: they are of the block whose module ran last before.
    """
    is_inserted = _INSERTED.search(str(node.target))  # quantized.add_relu is the model's own
    beside = (*node.users, *node.all_input_nodes) if is_inserted else ()
    for each in (node, *beside):
        if stack := each.meta.get("nn_module_stack"):
            path = next(reversed(stack.values()))[0]
            return _SELF.sub("", path) if isinstance(path, str) else None
    made = [each for each in node.all_input_nodes if each.op != "get_attr"]
    if not str(node.target).startswith("quantized.") or not made:
        return None
    last = node.prev
    while last not in made:
        last = last.prev
    path = origin_of(last)
    return path.rpartition(".")[0] if path and last.op == "call_module" else path


QUANTIZE: Final = "quantize"
DEQUANTIZE: Final = "dequantize"
OBSERVE: Final = "observe"
SCALES: Final = "choose scales"
CONVERT: Final = "convert"

_KINDS: Final[Mapping[str, re.Pattern[str]]] = {
    OBSERVE: re.compile(r"aten::_?(fake_quantize_|fused_moving_avg_obs).*|quantized_decomposed::fake_quant.*"),
    DEQUANTIZE: re.compile(r"\w+::_?dequantize(_.*)?"),
    QUANTIZE: re.compile(r"\w+::_?quantize_.*"),
    SCALES: re.compile(r"\w+::_?choose_(qparams|scale).*"),
}  # fmt: skip
"""Operators that change how numbers are stored, by what they do. Those within them belong to them."""

contracts: Final = cache(re.compile(
    r"(aten|mkldnn|mkl|onednn)::_?(mkl_)?(linear|conv(_transpose)?[123]d|convolution|convolution_pointwise"
    r"|linear_pointwise|matmul|einsum|mm|bmm|addmm|baddbmm)").fullmatch)  # fmt: skip
"""Whether an operator is a matrix product or a convolution of floats."""

_MULTIPLIES: Final = re.compile(r"\w+::_?(.*_)?(linear|conv|mm|matmul|addmm|bmm|baddbmm).*")
multiplies: Final = cache(_MULTIPLIES.fullmatch)
"""Whether an operator is a matrix product or a convolution of whatever type."""

allocates: Final = re.compile(r"aten::(_?empty(_.*)?|new_empty(_.*)?|resize_)").fullmatch
"""Whether an operator only allocates, for the operator within which it runs."""

COPY: Final = "aten::copy_"
"""Operator of a conversion: its first operand is what is written, its second what is read."""

COPIES: Final = frozenset({"aten::to", "aten::_to_copy", COPY})
"""Operators that contain nothing but a copy."""

MAKES_FLOATS: Final = COPIES | {"aten::mul", "aten::sub", "aten::div"}
"""Operators that dequantize where they take integers and return floats, as with a scale."""

_WITHOUT_COMPUTING: Final = COPIES | {f"aten::{name}" for name in (
    "_reshape_alias", "_unsafe_view", "alias", "as_strided", "chunk", "clone", "contiguous", "detach", "expand",
    "flatten", "narrow", "permute", "reshape", "select", "slice", "split", "squeeze", "t", "transpose", "unbind",
    "unflatten", "unsqueeze", "view", "empty", "empty_like", "empty_strided", "item", "_local_scalar_dense",
    "dropout", "resolve_conj",
)}  # fmt: skip

COMPILED: Final = "## Call CompiledFxGraph "
"""Begin of the event around code that torch.compile has generated; its key follows."""

_GENERATED: Final = (COMPILED, "cpp_", "triton_")

_TYPES: Final[Mapping[str, str]] = {
    "float": "float32", "double": "float64", "Half": "float16", "BFloat16": "bfloat16",
    "signed char": "int8", "unsigned char": "uint8", "short int": "int16", "int": "int32",
    "long int": "int64", "long": "int64",
}  # fmt: skip
"""Types that the profiler has under C++'s names."""


@cache
def kind_of(name: str) -> str | None:
    """Returns what an operator does to how numbers are stored; None for any other operator."""
    return next((kind for kind, names in _KINDS.items() if names.fullmatch(name)), None)


@cache
def is_operator(name: str) -> bool:
    """Whether an event of the profiler is a kernel and not a part of the runtime's Python."""
    return "::" in name or name.startswith(_GENERATED)


def computes(name: str) -> bool:
    """Whether an operator computes something, rather than to look at a tensor in another way."""
    return name not in _WITHOUT_COMPUTING and kind_of(name) is None


@cache
def type_of(name: str) -> str:
    """Returns a type as torch names it in Python."""
    plain = name.removeprefix("c10::")
    return _TYPES.get(plain, plain.lower())


def shown(name: str) -> str:
    """Returns an operator as people are shown it."""
    if not name.startswith(COMPILED):
        return name
    key = name[len(COMPILED) :].removesuffix(" ##")
    return "compiled code" if key == "None" else f"compiled code {key[:8]}"


MODEL: Final = "(model)"  # What stands in place of a path for the model itself
_LONGEST: Final = 120


def place_name(module: str) -> str:
    """Returns the path of a module as people are shown it."""
    return printable(module, _LONGEST) if module else MODEL
