"""Ranges around the modules of a model while it runs, without a change of the model.

A hook of a module would be seen by the module: torch's own transformer layers run other kernels then.
Hooks of all modules are not, and what is compiled gets none.
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
from typing import Any, Final, TypeAlias

Enter: TypeAlias = Callable[[str], Callable[[], object]]
"""Begins a range of a path and returns what ends it."""

_ORIGINAL: Final = "_orig_mod"
"""Name of the module within a compiled one."""

_PUT_IN: Final = re.compile(r"quantize(?!d)")
"""In the name of what quantizes or dequantizes."""

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


def observers_of(model: Any) -> frozenset[str]:
    """Returns the paths of the modules that observe numbers or imitate their quantization."""
    return frozenset(
        path for path, module in module_paths(model).items() if hasattr(module, "calculate_qparams")
    )


def is_compiled(module: Any) -> bool:
    """Whether a module is one that torch.compile has made, or that is compiled in place."""
    return hasattr(module, _ORIGINAL) or getattr(module, "_compiled_call_impl", None) is not None


@contextmanager
def module_ranges(model: Any, enter: Enter) -> Iterator[None]:
    """Has a range begin and end with each module of a model that this thread runs in the block.

    Operators of a graph (FX, PT2E) belong to the modules that the graph's nodes name.
    """
    import torch
    from torch.nn.modules import module as hooks

    paths = {id(module): name for name, module in module_paths(model).items()}
    thread = threading.get_ident()
    open_ranges: list[tuple[int, Callable[[], object]]] = []

    def begin(module: Any, _: Any) -> None:
        path = paths.get(id(module))
        if path is not None and threading.get_ident() == thread:
            open_ranges.append((id(module), enter(path)))

    def end(module: Any, *_: Any) -> None:
        if id(module) in paths and threading.get_ident() == thread:
            while open_ranges:
                at, leave = open_ranges.pop()
                leave()
                if at == id(module):
                    break

    if not paths:
        yield
        return
    if "torch._dynamo" in sys.modules:  # it would compile the hooks
        hidden: Callable[[Any], Any] = torch.compiler.disable
        begin, end = hidden(begin), hidden(end)
    with ExitStack() as kept:
        if any(map(is_compiled, model.modules())):  # it warns of hooks
            kept.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")
        for path, module in module_paths(model).items():
            if isinstance(module, torch.fx.GraphModule):
                kept.enter_context(_node_ranges(path, module, enter))
        kept.callback(lambda: [leave() for _, leave in reversed(open_ranges)])
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
            if origin is None:
                return super().run_node(n)
            leave = enter(".".join(filter(None, (path, origin))))
            try:
                return super().run_node(n)
            finally:
                leave()

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

    had = "forward" in vars(module)
    before = vars(module).get("forward")
    vars(module)["forward"] = forward
    try:
        yield
    finally:
        if had:
            vars(module)["forward"] = before
        else:
            del vars(module)["forward"]


def origin_of(node: Any) -> str | None:
    """Returns the path of the module that a node of a graph comes from; None if nothing tells.

    Nodes that quantize and dequantize are put in by quantizers: they belong to a neighbour.
    """
    put_in = _PUT_IN.search(str(node.target))  # quantized.add_relu is the model's own
    beside = (*node.users, *node.all_input_nodes) if put_in else ()
    for each in (node, *beside):
        if stack := each.meta.get("nn_module_stack"):
            path = next(reversed(stack.values()))[0]
            return _SELF.sub("", path) if isinstance(path, str) else None
    return None
