"""``otel-quant mcp``: answers of the commands that only read, for agents, over the Model Context Protocol."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Awaitable, Callable
from importlib import import_module
from pathlib import Path
from typing import Final

from otel_quant.cli import command as cmd

_TOOLS: Final = ("show", "compare", "runs", "audit", "cost")
_ANSWER: Final = (
    "Returns one JSON object: verdict, evidence, certainty, help, and `next`, commands for a shell."
)


def _run(options: argparse.Namespace) -> int:
    try:
        from mcp.server.mcpserver import MCPServer
        from mcp.server.mcpserver.exceptions import ToolError
        from mcp.types import ToolAnnotations
    except ImportError:
        expected = "expected: pip install 'otel-quant[mcp]'"
        raise cmd.UserError(f"mcp 2 is not installed; {expected}") from None
    with cmd.user_errors(OSError, exit_code=cmd.MISUSED):
        top = Path(options.folder).resolve(strict=True)
    server, reads = MCPServer("otel-quant"), ToolAnnotations(read_only_hint=True)
    for name in _TOOLS:
        what = import_module(f"otel_quant.cli.{name}").COMMAND.description
        text = f"{what} Paths are below {top}. {_ANSWER}"
        server.add_tool(_tool(name, top, ToolError), name, description=text, annotations=reads)
    server.run()
    return 0


def _tool(name: str, top: Path, error: type[Exception]) -> Callable[[list[str]], Awaitable[str]]:
    """Returns what runs a command on paths below a folder, and returns its brief answer; other paths are an error."""
    import asyncio

    async def answer(paths: list[str]) -> str:
        found = [(top / path).resolve() for path in paths]
        for path in found:
            if not path.is_relative_to(top):
                raise error(f"{path}: is outside of {top}; expected a path below it")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "otel_quant", name, "--brief", *map(str, found)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        printed, failed = await process.communicate()
        return (printed or failed).decode()

    return answer


COMMAND: Final = cmd.Command(
    brief="answer an agent over the Model Context Protocol",
    description="Serves the brief answers of show, compare, runs, audit and cost on standard input and output, as tools of the Model Context Protocol. It only reads, and refuses paths outside of the folder. Ends with its client.",
    examples=("runs", "/models"),
    arguments=(cmd.option("folder", metavar="DIR", help="a folder with recordings or models"),),
    run=_run,
)
