"""Pydantic AI: an agent with MCP toolsets, made durable by its DBOS capability over SQLite.

Part of `driver.conformance.adapters`; needs pydantic-ai-slim with its extras `mcp` and `dbos`, in an
environment of their own (docs/conformance.md). They are imported by name: the code is checked without them.

A command is a DBOS workflow whose id is the command's, and which runs the agent once: ask a model, which is
scripted, call the tool that it named, and ask it again. As the documentation of both has it:

- every request to the model and every call of a tool is a step, recorded when it ends (`DBOSDurability`)
- the toolset of the tools that deduplicate has the default number of retries; that of the others has none.
  A retry is what the framework asks the model for, and the model makes the same call again
- after a restart DBOS resumes what had not ended; a workflow id that is known starts nothing
- the idempotency key is an argument that the model filled in: recorded with its answer, before the call

A tool's result is `succeeded`, its error `failed` (`tool_error_behavior="failed"`, which lets both be told
apart). An exception that the workflow ends with says nothing of the effect, so it is `unknown`.
"""

import json
from collections.abc import Mapping
from importlib import import_module, metadata
from types import MappingProxyType
from typing import Any, Final
from uuid import uuid4

import anyio

from driver.conformance.adapters.verbs import Command, Setting, Told, serve

ai: Any = import_module("pydantic_ai")
mcp: Any = import_module("pydantic_ai.mcp")
function: Any = import_module("pydantic_ai.models.function")
messages: Any = import_module("pydantic_ai.messages")
durable: Any = import_module("pydantic_ai.durable_exec.dbos")
transports: Any = import_module("fastmcp.client.transports")
dbos: Any = import_module("dbos")

PARTS: Final = ("dbos", "fastmcp-slim", "mcp")
RETRIES: Final = 1
"""The framework's own default."""
POLL_S: Final = 0.1
UNENDED: Final = ("PENDING", "ENQUEUED")
Json = dict[str, Any]


class PydanticAI:
    """The workflow, by whose id a command is known."""

    name = "pydantic-ai"
    version = metadata.version("pydantic-ai-slim")
    parts: Mapping[str, str] = MappingProxyType({part: metadata.version(part) for part in PARTS})

    def __init__(self, workflow: Any) -> None:  # noqa: ANN401 - imported by name
        self._workflow = workflow

    async def deliver(self, command: Command) -> str | None:
        """Start the workflow; DBOS knows whether there is one with this id."""
        asked = json.dumps({"tool": command.tool, "arguments": dict(command.arguments)})
        with dbos.SetWorkflowID(command.command_id):
            await dbos.DBOS.start_workflow_async(self._workflow, asked)
        return None

    async def outcome(self, command_id: str, wait_s: float) -> Told:
        """Say how it ended."""
        if await dbos.DBOS.get_workflow_status_async(command_id) is None:
            return Told(outcome="unheard")
        workflow = await dbos.DBOS.retrieve_workflow_async(command_id)
        with anyio.move_on_after(wait_s):
            while (await workflow.get_status()).status in UNENDED:  # noqa: ASYNC110 - a row, in a file of DBOS
                await anyio.sleep(POLL_S)
            try:
                return Told(outcome=await workflow.get_result())
            except Exception as error:  # noqa: BLE001 - whatever a workflow raises is what its caller gets
                return Told(outcome="unknown", detail=repr(error))
        return Told(outcome="running")


def _scripted(said: list[Any], keyed: frozenset[str]) -> Any:  # noqa: ANN401 - imported by name
    """Return what the model says: the call that it was asked for, again where it is asked to try again."""
    last = said[-1].parts[-1]
    calls = [part for message in said for part in message.parts if isinstance(part, messages.ToolCallPart)]
    if calls and getattr(last, "outcome", None) != "retried":
        return messages.ModelResponse(parts=[messages.TextPart("done")])
    if calls:
        name, arguments = calls[-1].tool_name, calls[-1].args
    else:
        asked: Json = json.loads(last.content)
        key = {"idempotency_key": str(uuid4())} if asked["tool"] in keyed else {}
        name, arguments = asked["tool"], {**asked["arguments"], **key}
    return messages.ModelResponse(parts=[messages.ToolCallPart(name, arguments)])


def _toolset(setting: Setting, name: str, tools: frozenset[str], retries: int) -> Any:  # noqa: ANN401 - the same
    served = mcp.MCPToolset(
        transports.StdioTransport(command=setting.server[0], args=list(setting.server[1:])),
        id=name,
        read_timeout=setting.deadline_s,
        max_retries=retries,
        tool_error_behavior="failed",
    )

    def belongs(_: object, tool: Any) -> bool:  # noqa: ANN401 - the same
        return tool.name in tools

    return served.filtered(belongs)


async def start(setting: Setting) -> PydanticAI:
    """Make the agent and its workflow, and launch DBOS, which resumes what had not ended."""
    keyed = frozenset(
        name for name, about in setting.tools.items() if about["effect"] == "write" and about["idempotent"]
    )

    def model(said: list[Any], _: object) -> Any:  # noqa: ANN401 - imported by name
        return _scripted(said, keyed)

    agent = ai.Agent(
        function.FunctionModel(model),
        name="conformance",
        toolsets=[
            _toolset(setting, "once", frozenset(setting.tools) - keyed, 0),
            _toolset(setting, "repeatable", keyed, RETRIES),
        ],
        capabilities=[durable.DBOSDurability()],
    )

    @dbos.DBOS.workflow(name="work")  # type: ignore[untyped-decorator]
    async def work(asked: str) -> str:
        said = (await agent.run(asked)).all_messages()
        results = [part for message in said for part in message.parts if hasattr(part, "outcome")]
        return "succeeded" if results[-1].outcome == "success" else "failed"

    file = setting.state / "workflows.sqlite"
    dbos.DBOS(
        config={"name": "conformance", "system_database_url": f"sqlite:///{file}", "log_level": "ERROR"}
    )
    dbos.DBOS.launch()
    return PydanticAI(work)


if __name__ == "__main__":
    anyio.run(serve, start)
