"""LangGraph: a graph of a model and its tools, its checkpointer in SQLite, and MCP tools by its own adapters.

Part of `driver.conformance.adapters`; needs langgraph, langgraph-checkpoint-sqlite and
langchain-mcp-adapters, in an environment of their own (docs/conformance.md). They are imported by name: the
code is checked without them.

A command is a thread. Its graph asks a model, which is scripted, calls the tool that the model named, and
asks the model again. As LangGraph's documentation of durable execution has it:

- every step is saved before the next one begins (`durability="sync"`)
- a node whose tool deduplicates has the default `RetryPolicy`; a node whose tool does not has none
- after a restart a thread that has not ended is resumed, by an invocation without input
- the idempotency key is an argument that the model filled in: saved with its message, before the call

A tool's result is `succeeded`, its error `failed`. An exception that the graph raises says nothing of the
effect, so it is `unknown`, and it stands until the process ends. Within a thread nothing compares what is
asked with what was asked: a known id is the same command, whatever its arguments.
"""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from importlib import import_module, metadata
from types import MappingProxyType
from typing import Any, Final
from uuid import uuid4

import anyio
from anyio.abc import TaskGroup

from driver.conformance.adapters.verbs import ById, Command, Setting, Told, serve

graph: Any = import_module("langgraph.graph")
prebuilt: Any = import_module("langgraph.prebuilt")
checkpoint: Any = import_module("langgraph.checkpoint.sqlite.aio")
types: Any = import_module("langgraph.types")
messages: Any = import_module("langchain_core.messages")
mcp_client: Any = import_module("langchain_mcp_adapters.client")

PARTS: Final = ("langgraph-checkpoint-sqlite", "langchain-mcp-adapters", "mcp")
MODEL: Final = "model"
Json = dict[str, Any]


class LangGraph(ById):
    """The graph, and the threads that this process runs."""

    name = "langgraph"
    version = metadata.version("langgraph")
    parts: Mapping[str, str] = MappingProxyType({part: metadata.version(part) for part in PARTS})

    def __init__(self, compiled: Any, tasks: TaskGroup) -> None:  # noqa: ANN401 - imported by name
        super().__init__(tasks)
        self._graph = compiled

    async def _told(self, command: Command) -> Told:
        """Begin a thread, or resume it."""
        thread: Json = {"configurable": {"thread_id": command.command_id}}
        asked = json.dumps({"tool": command.tool, "arguments": dict(command.arguments)})
        try:
            saved = await self._graph.aget_state(thread)
            given = None if saved.values else {"messages": [messages.HumanMessage(asked)]}
            ended = bool(saved.values) and not saved.next
            values = saved.values if ended else await self._graph.ainvoke(given, thread, durability="sync")
            return _result(values["messages"])
        except Exception as error:  # noqa: BLE001 - whatever a graph raises is what its caller gets
            return Told(outcome="unknown", detail=repr(error))


def _result(said: list[Any]) -> Told:
    result = next(message for message in reversed(said) if isinstance(message, messages.ToolMessage))
    return Told(outcome="succeeded" if result.status == "success" else "failed", detail=str(result.content))


def _scripted(state: Json, keyed: frozenset[str]) -> Json:
    """Return what the model says: the call that it was asked for, and after its result that it is done."""
    last = state["messages"][-1]
    if not isinstance(last, messages.HumanMessage):
        return {"messages": [messages.AIMessage("done")]}
    asked: Json = json.loads(last.content)
    key = {"idempotency_key": str(uuid4())} if asked["tool"] in keyed else {}
    call = {"name": asked["tool"], "args": {**asked["arguments"], **key}, "id": str(uuid4())}
    return {"messages": [messages.AIMessage("", tool_calls=[call])]}


async def _compiled(setting: Setting, saver: Any) -> Any:  # noqa: ANN401 - imported by name
    connection = {
        "transport": "stdio",
        "command": setting.server[0],
        "args": list(setting.server[1:]),
        "session_kwargs": {"read_timeout_seconds": timedelta(seconds=setting.deadline_s)},
    }
    tools = await mcp_client.MultiServerMCPClient({"world": connection}).get_tools()
    keyed = frozenset(
        name for name, about in setting.tools.items() if about["effect"] == "write" and about["idempotent"]
    )

    def model(state: Json) -> Json:
        return _scripted(state, keyed)

    def route(state: Json) -> str:
        calls = state["messages"][-1].tool_calls
        return str(graph.END) if not calls else "repeatable" if calls[0]["name"] in keyed else "once"

    built = graph.StateGraph(graph.MessagesState)
    built.add_node(MODEL, model)
    built.add_node("once", prebuilt.ToolNode([tool for tool in tools if tool.name not in keyed]))
    built.add_node(
        "repeatable",
        prebuilt.ToolNode([tool for tool in tools if tool.name in keyed]),
        retry_policy=types.RetryPolicy(),
    )
    built.add_edge(graph.START, MODEL)
    built.add_conditional_edges(MODEL, route, ["once", "repeatable", graph.END])
    built.add_edge("once", MODEL)
    built.add_edge("repeatable", MODEL)
    return built.compile(checkpointer=saver)


@asynccontextmanager
async def _opened(setting: Setting, tasks: TaskGroup) -> AsyncGenerator[LangGraph]:
    async with checkpoint.AsyncSqliteSaver.from_conn_string(str(setting.state / "threads.sqlite")) as saver:
        yield LangGraph(await _compiled(setting, saver), tasks)


async def main() -> None:
    """Serve the battery."""
    async with anyio.create_task_group() as tasks, AsyncExitStack() as open_files:

        async def start(setting: Setting) -> LangGraph:
            return await open_files.enter_async_context(_opened(setting, tasks))

        await serve(start)
        tasks.cancel_scope.cancel()


if __name__ == "__main__":
    anyio.run(main)
