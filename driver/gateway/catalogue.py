"""The tools of all providers in one list, as fresh as their providers can be asked.

Part of `driver.gateway`; imports `driver.core`, `driver.providers` (its protocols) and its siblings.

A provider that is down is left out of a list. One that is slow holds up one list, and no other one before it
has answered: it is waited for beside them. When it has come, or says that its tools changed, `changed` is
called and clients ask again. What a provider listed last stays known: a call of such a tool goes to the
engine, which says what is wrong.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping

import anyio
import structlog

from driver.core.attempts import NotSent
from driver.core.contracts import Contract, ToolName
from driver.core.identity import definition_digest
from driver.gateway.fitting import fits
from driver.gateway.limits import GatewayLimits
from driver.gateway.names import exposed, parse
from driver.providers.protocol import Provider
from driver.providers.serving import Serving
from store.records import JsonObject, JsonValue

log = structlog.stdlib.get_logger(__name__)


class Catalogue:
    """What can be called, and under which name."""

    def __init__(
        self,
        providers: Mapping[str, Provider],
        contract: Callable[[str], Contract],
        limits: GatewayLimits,
        changed: Callable[[frozenset[str]], Awaitable[None]],
    ) -> None:
        self._providers = {name: found for name, found in providers.items() if isinstance(found, Serving)}
        self._contract = contract
        self._limits = limits
        self._changed = changed
        self._tools: dict[str, dict[str, JsonObject]] = {name: {} for name in self._providers}
        """By provider and exposed name, as they are shown."""
        self._names: dict[str, ToolName] = {}
        self._listed: set[str] = set()
        """Providers that have answered once."""
        self._late: set[str] = set()
        """Providers that did not answer in time, and have not since."""
        self._digest = ""
        self._stale = anyio.Event()
        self._told = False

    def is_late(self, provider: str) -> bool:
        """Whether a provider was waited for in vain: nobody else should wait for it."""
        return provider in self._late

    async def tools(self) -> list[JsonValue]:
        """Return the list, each provider asked anew; who has not answered within `list_s` follows later."""
        await self._refresh_in_time(self._providers)
        self._digest = self._state()
        return [tool for name in sorted(self._tools) for tool in self._tools[name].values()]

    async def resolve(self, name: str) -> ToolName | None:
        """Return the tool of that name; None where no provider can have one.

        A provider that has not been listed yet is asked first: a name may be a mended one.
        """
        found = self._names.get(name)
        if found is not None:
            return found
        plain = parse(name)
        if plain is None or plain.provider not in self._providers:
            await self._list_unlisted(None)
            return self._names.get(name)
        await self._list_unlisted(plain.provider)
        found = self._names.get(name)
        if found is None and plain.provider not in self._listed:
            return plain  # nobody knows its tools: the engine tells why
        if found is None:
            await self._refresh_in_time((plain.provider,))
        return self._names.get(name)

    def schema(self, name: str) -> JsonValue:
        """Return the input schema of a tool as it is shown, None where there is none of that name."""
        found = self._names.get(name)
        return None if found is None else self._tools[found.provider][name].get("inputSchema")

    @property
    def names(self) -> list[str]:
        """The names of all tools that are known."""
        return sorted(self._names)

    def mark(self) -> None:
        """Take note that a provider says that it lists something else now. Never blocks."""
        self._told = True
        self._stale.set()

    async def watch(self) -> None:
        """Look whenever a list may have changed, and now and then, until cancelled; tell which ones have."""
        waited: set[str] = set()
        async with anyio.create_task_group() as tasks:
            while True:
                with anyio.move_on_after(self._limits.poll_s):
                    await self._stale.wait()
                told, self._told = self._told, False
                self._stale = anyio.Event()
                for name in self._late - waited:
                    waited.add(name)
                    tasks.start_soon(self._wait_for, name, waited)
                if self._digest:  # else nobody has a list that could be out of date
                    await self._look(told=told)

    async def _look(self, *, told: bool) -> None:
        """Ask for all tools, and tell what has changed."""
        before = self._digest
        await self._refresh_in_time(self._providers)
        self._digest = self._state()
        changed = {"tools"} if self._digest != before else set[str]()
        if told:
            changed |= {"resources", "prompts"}
        if changed:
            await self._changed(frozenset(changed))

    async def _wait_for(self, name: str, waited: set[str]) -> None:
        """Ask a provider that is late, as long as it takes, and have a look once it has come."""
        if await self._refresh(name):
            self._stale.set()
        waited.discard(name)

    async def _list_unlisted(self, provider: str | None) -> None:
        """Ask those providers that have not answered yet; the one named alone, where one is."""
        await self._refresh_in_time(
            name for name in self._providers if name not in self._listed and provider in (None, name)
        )

    async def _refresh_in_time(self, names: Iterable[str]) -> None:
        """Ask providers for their tools, all at once, but none that is late; nor any longer than `list_s`."""
        missing = set(names) - self._late

        async def refresh(name: str) -> None:
            await self._refresh(name)
            missing.discard(name)

        with anyio.move_on_after(self._limits.list_s):
            async with anyio.create_task_group() as tasks:
                for name in tuple(missing):
                    tasks.start_soon(refresh, name)
        if missing:
            self._late |= missing
            self._stale.set()

    async def _refresh(self, name: str) -> bool:
        """Ask one provider for its tools. Returns whether it has told them."""
        found = await self._providers[name].definitions()
        if isinstance(found, NotSent):
            log.warning("tools_not_listed", provider=name, reason=found.reason, error=found.message)
            return False
        shown: dict[str, JsonObject] = {}
        names: dict[str, ToolName] = {}
        for definition in found:
            tool = ToolName(name, str(definition["name"]))
            called = exposed(tool)
            fitting = self._shown(definition, tool, called)
            if fitting is not None and called not in shown:
                shown[called], names[called] = fitting, tool
        self._names = {key: tool for key, tool in self._names.items() if tool.provider != name} | names
        self._tools[name] = shown
        self._listed.add(name)
        self._late.discard(name)
        return True

    def _shown(self, definition: JsonObject, tool: ToolName, called: str) -> JsonObject | None:
        """Return a definition under its name here; None where no client could read it."""
        shown: JsonObject = {**definition, "name": called}
        if "title" not in shown and called != f"{tool.provider}__{tool.tool}":
            shown["title"] = str(tool)
        if not fits("tools/list", "tools", shown):
            log.warning("tool_not_shown", tool=str(tool), why="its definition is none that MCP knows")
            return None
        return shown

    def _state(self) -> str:
        tools: JsonObject = {name: dict(shown) for name, shown in self._tools.items()}
        return definition_digest(tools)
