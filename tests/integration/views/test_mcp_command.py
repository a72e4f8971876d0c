"""An agent gets the brief answers of commands that read, of what is below one folder."""

from __future__ import annotations

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.fixtures.checkpoints import tensors
from tests.fixtures.commands import Commands


async def answers(top: Path, calls: list[tuple[str, str]]) -> tuple[set[bool], list[Any]]:
    """Returns whether tools only read, and what the server answers to some calls."""
    from mcp import ClientSession
    from mcp.client.stdio import StdioServerParameters, stdio_client

    server = StdioServerParameters(
        command=sys.executable, args=["-m", "otel_quant", "mcp", str(top)]
    )
    async with stdio_client(server, sys.__stderr__) as streams, ClientSession(*streams) as session:
        await session.initialize()
        tools = (await session.list_tools()).tools
        found = [await session.call_tool(name, {"paths": [path]}) for name, path in calls]
    return {each.annotations.read_only_hint for each in tools if each.annotations}, found


def test_an_agent_gets_the_brief_answer_of_what_is_below_the_folder_alone(
    tmp_path: Path, command: Commands
) -> None:
    top = tmp_path / "models"
    tensors("gptq4").write(top / "good")
    tensors("gptq4").write(tmp_path / "elsewhere")
    (top / "link").symlink_to(tmp_path / "elsewhere")
    calls = [("audit", "good"), ("audit", "../elsewhere"), ("audit", "link"), ("show", "--help")]
    with ThreadPoolExecutor(1) as thread:  # The browser's tests leave a loop running in this one
        asked = thread.submit(asyncio.run, answers(top, calls))
    reads, (good, *outside, strange) = asked.result()
    assert reads == {True}
    expected = command.output("audit", top / "good", "--brief")
    assert good.content[0].text == expected
    assert "as configured" in expected
    for each in outside:
        assert each.is_error
        expected = f"{tmp_path / 'elsewhere'}: is outside of {top}; expected a path below it"
        assert expected in each.content[0].text
    assert "cannot be opened" in strange.content[0].text
