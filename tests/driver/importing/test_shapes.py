"""Every client's shape: which servers are found in it, and what becomes of each."""

import json
from pathlib import Path

import pytest

from driver.config.load import parse
from driver.config.providers import McpProviderTable
from driver.importing.errors import SourceInvalid, SourceUnreadable
from driver.importing.planning import Plan, Provider
from tests.driver.importing.sources import CANARY, CLIENTS, files, planned, rendered

PROJECT = CLIENTS / "project"
SHELL = ("sh", "-c")


def of(name: str) -> Plan:
    """Return what becomes of a collected file."""
    path = CLIENTS / name
    return planned(path.read_text(encoding="utf-8"), path)


def fates(made: Plan) -> dict[str, str]:
    """Return what becomes of the servers that are not taken over."""
    return {server.name: server.fate for server in made.servers if server.provider is None}


def contents(made: Plan) -> dict[str, str]:
    """Return what the files of secrets hold."""
    return {secret.name: secret.value for secret in made.secrets}


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(CLIENTS)))
def test_every_shape_becomes_a_valid_configuration_without_a_secret(path: Path) -> None:
    """Each file gives providers, the text is accepted as it stands, and no made-up secret is in it."""
    made = planned(path.read_text(encoding="utf-8"), path)
    text = rendered(made)
    config = parse(text, Path("/etc/effectd/effectd.toml"))
    assert set(config.providers) == set(made.providers) != set()
    assert config.gateway is not None
    assert CANARY not in text
    assert all(secret.name in text for secret in made.secrets)


def test_there_are_more_than_ten_shapes_and_the_page_names_each() -> None:
    """Nobody has to guess which client a file is of."""
    page = (CLIENTS / "README.md").read_text(encoding="utf-8")
    names = [str(path.relative_to(CLIENTS)) for path in files()]
    assert len(names) > 10
    assert all(f"| `{name}` |" in page for name in names)


def test_a_desktop_client() -> None:
    """Words stay words; a secret in one comes from a variable, which only the shell in between sees."""
    made = of("plain.json")
    assert made.form == "mcpServers"
    assert made.providers["filesystem"] == Provider(
        argv=(
            "npx",
            "-y",
            "@modelcontextprotocol/server-filesystem",
            "/home/mia/Desktop",
            "/home/mia/Downloads",
        )
    )
    assert made.providers["brave-search"] == Provider(
        argv=(
            *SHELL,
            'exec docker run -i --rm -e BRAVE_API_KEY -e PROXY_TOKEN="$EFFECTD_WORD_1" mcp/brave-search',
        ),
        env={"LOG_LEVEL": "info"},
        env_files={
            "BRAVE_API_KEY": "brave-search.BRAVE_API_KEY",
            "EFFECTD_WORD_1": "brave-search.EFFECTD_WORD_1",
        },
    )
    assert contents(made)["brave-search.EFFECTD_WORD_1"] == "canary-in-a-word"
    assert made.providers["postgres"].argv[-1].endswith('server-postgres "$EFFECTD_WORD_1"')


def test_a_file_of_a_project() -> None:
    """Its servers run in the project's folder; defaults are no secrets, and variables are."""
    made = of("project/.mcp.json")
    assert fates(made) == {"events": "left_out"}
    assert made.providers["shared"] == Provider(url="https://api.example.com/mcp")
    assert made.providers["api"].url == "https://api.example.com/mcp"
    assert contents(made)["api.Authorization"] == "Bearer canary-api-key"
    assert made.providers["database"] == Provider(
        argv=("/home/mia/bin/db-mcp", "--config", "./db.json", "--region=eu"),
        cwd=str(PROJECT),
        env={"CACHE": "off"},
        env_files={"DB_URL": "database.DB_URL"},
    )


def test_servers_of_a_user_and_of_projects() -> None:
    """Two of one name are two providers, and the second runs where its project is."""
    made = of("user-and-projects.json")
    assert {name: found.cwd for name, found in made.providers.items()} == {
        "tracker": None,
        "tracker-2": "/home/mia/shop",
    }


def test_a_file_of_an_editor_in_a_project() -> None:
    """Folders are filled in, and a file of variables is read; what is in it is secret, too."""
    made = of("project/.editor/mcp.json")
    local = made.providers["local"]
    assert local.argv == ("uv", "--directory", f"{PROJECT}/tools", "run", "server.py")
    assert local.env == {"SERVICE_MODE": "debug"}
    assert set(local.env_files) == {"API_KEY", "SERVICE_SECRET", "SERVICE_URL"}
    assert contents(made)["local.SERVICE_SECRET"] == "canary service"


def test_addresses_with_secrets() -> None:
    """A key in a query or a path takes the whole address along; user and password become a header."""
    made = of("server-url.json")
    assert made.providers["figma"] == Provider(url="http://127.0.0.1:3845/mcp")
    assert made.providers["search"] == Provider(url_file="search.url")
    assert made.providers["automations"] == Provider(url_file="automations.url")
    assert made.providers["basic"] == Provider(
        url="https://mcp.example/mcp", header_files={"Authorization": "basic.Authorization"}
    )
    assert contents(made)["basic.Authorization"] == "Basic bWlhOmNhbmFyeS1iYXNpYw=="


def test_what_is_switched_off_or_cannot_be_spoken_is_said() -> None:
    """Neither is a provider, and neither is lost silently; nothing of what is off is kept."""
    made = of("auto-approve.json")
    assert fates(made) == {"older": "left_out", "asleep": "disabled"}
    text = rendered(made)
    assert "# older: not taken over, because it speaks the older transport HTTP+SSE" in text
    assert "# asleep: not taken over, because it is switched off" in text
    assert not any("asleep" in secret.name for secret in made.secrets)
    assert any("without asking" in note for note in made.servers[0].notes)


def test_a_bridge_and_effectd_itself() -> None:
    """A header on a command line is a secret; what an earlier import put into the file is passed over."""
    made = of("always-allow.json")
    assert fates(made) == {"effectd-server": "own"}
    assert made.providers["bridge"].argv == (
        *SHELL,
        'exec npx mcp-remote https://remote.example/sse --header "$EFFECTD_WORD_1"',
    )
    assert any("effectd serves all" in note for note in made.servers[0].notes)


def test_an_editors_file_with_inputs_and_comments() -> None:
    """What the editor would ask for comes from the environment."""
    made = of("servers-and-inputs.json")
    assert made.form == "servers"
    assert contents(made)["perplexity.PERPLEXITY_API_KEY"] == "canary-perplexity"
    assert made.providers["github"] == Provider(url="https://api.githubcopilot.example/mcp/")


def test_servers_among_an_editors_settings() -> None:
    """Numbers are words, and what follows an option for a password is one."""
    made = of("within-settings.json")
    assert made.form == "settings"
    assert made.providers["db"].argv == (*SHELL, 'exec db-mcp --password "$EFFECTD_WORD_1" --port 5432')


def test_tables() -> None:
    """Variables that are forwarded, and those that headers are named after, are read."""
    made = of("tables.toml")
    assert made.form == "mcp_servers"
    assert fates(made) == {"unused": "disabled"}
    assert set(made.providers["docs"].env_files) == {"API_KEY", "REGION"}
    assert {name: contents(made)[file] for name, file in made.providers["figma"].header_files.items()} == {
        "Authorization": "Bearer canary-api-key",
        "X-Figma-Region": "canary-figma",
        "X-Org": "canary-org",
    }


def test_variables_as_whole_values() -> None:
    """`$VAR` is one, and folders count from the file's own."""
    made = of("http-url.json")
    assert contents(made)["python-tools.DATABASE_URL"] == "canary://db"
    assert made.providers["python-tools"].cwd == str(CLIENTS / "mcp-servers/python")
    assert made.providers["stream"].url == "https://api.example/mcp"


def test_context_servers() -> None:
    """A command may be an object; what only an extension can start is left out."""
    made = of("context-servers.json")
    assert made.form == "context_servers"
    assert made.providers["nested"].argv == ("nested-command", "--stdio")
    assert fates(made) == {"from-an-extension": "left_out"}


def test_local_and_remote() -> None:
    """A command line may be one array, and true is a word."""
    made = of("local-and-remote.jsonc")
    assert made.form == "opencode"
    assert made.providers["everything"].argv == (
        "npx",
        "-y",
        "@modelcontextprotocol/server-everything",
    )
    assert made.providers["everything"].env == {"VERBOSE": "true"}
    assert contents(made)["context.CONTEXT_API_KEY"] == "canary-api-key"


def test_a_list_of_tables() -> None:
    """Names may stand within the tables; what a provider may not be called is mended."""
    made = of("list-of-tables.toml")
    assert set(made.providers) == {"fetch-server", "my-http-server"}


def test_the_inner_part_alone() -> None:
    """A file that is nothing but servers by their names is one, too."""
    made = planned('{"one": {"command": "x"}, "two": {"url": "https://h/mcp"}}')
    assert set(made.providers) == {"one", "two"}


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.json", "{", "is no JSON: line 1, column 2"),
        ("a.json", "[" * 100_000, "is no JSON: it is nested too deeply"),
        ("a.json", "9" * 5_000, "is no JSON: it has a number of very many digits"),
        ("a", "// one\n{", "is no JSON: line 2"),
        ("a.toml", "[mcp_servers", "is no TOML"),
        ("a", "a = 1\na = 2", "is no TOML"),
        ("a.toml", f"a = {'[' * 100_000}", "is no TOML"),
        ("a.toml", f"a = {'9' * 5_000}", "is no TOML: it has a number of very many digits"),
        (
            "config.yaml",
            "extensions:\n  mail:\n    cmd: mail-mcp\n",
            "is YAML, of which some clients have files",
        ),
        ("config.yml", "mcpServers:\n  - name: mail\n", "write its servers as JSON"),
    ],
)
def test_what_is_neither_json_nor_toml_is_refused(name: str, text: str, expected: str) -> None:
    """In one line, with the place."""
    with pytest.raises(SourceUnreadable) as refused:
        planned(text, Path("/home/mia") / name)
    assert expected in str(refused.value)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("npx -y mail-mcp", "refused"),
        ("uvx mail-mcp", "refused"),
        ("TOKEN=1 mail-mcp", "refused"),
        (" npx", "nothing"),
        (" ", "nothing"),
        ("/opt/My Tools/mail-mcp", "nothing"),
        ("~/My Tools/mail-mcp", "nothing"),
        ("/usr/bin/npx -y mail-mcp", "noted"),
    ],
)
def test_a_command_line_in_one_string_is_no_program(command: str, said: str) -> None:
    """What is surely one is a mistake, with what to write; a path may have spaces, and is taken as it is."""
    text = json.dumps({"mcpServers": {"mail": {"command": command, "args": ["--fast"]}}})
    if said == "refused":
        with pytest.raises(
            SourceInvalid, match=r'command: it is a whole .* "args": \["-y", "…"\]'
        ) as refused:
            planned(text)
        assert command not in str(refused.value)
        return
    notes = planned(text).servers[0].notes
    assert any("a whole command line in one string" in note for note in notes) == (said == "noted")


def test_json_is_read_whatever_its_file_is_called() -> None:
    """It is YAML, too."""
    made = planned('{"mcpServers": {"mail": {"command": "mail-mcp"}}}', Path("/home/mia/config.yaml"))
    assert set(made.providers) == {"mail"}


@pytest.mark.parametrize("text", ["{}", "[]", "3", '{"mcpServers": {}}', '{"theme": "dark"}', "a = 1"])
def test_a_file_without_servers_says_what_was_looked_for(text: str) -> None:
    """Whoever named the wrong file learns it."""
    with pytest.raises(SourceInvalid, match="there are no MCP servers here; looked for: mcpServers"):
        planned(text, Path(f"/home/mia/{'file' if '=' in text else 'file.json'}"))


def test_every_mistake_is_named_at_once_and_none_quotes_a_value() -> None:
    """One look mends them all."""
    text = json.dumps(
        {
            "mcpServers": {
                "a": {"command": 5, "args": CANARY, "env": {"K": [CANARY], "L": {}}, "disabled": CANARY},
                "b": {"url": f"ftp://{CANARY}"},
                "c": {"command": "x", "args": ["${NOWHERE}", "${NOWHERE}"], "env": {"T": "${input:my key}"}},
                "d": {"url": "https://h", "headers": {"Host": CANARY, "X": f"{CANARY}\n"}},
                "e": CANARY,
                "f": {"command": "x", "env": {"A=B": CANARY}},
                "g": {"command": f"x\0{CANARY}"},
            }
        }
    )
    with pytest.raises(SourceInvalid) as refused:
        planned(text)
    said = str(refused.value)
    assert CANARY not in said
    for expected in (
        "[mcpServers.a] command: a string, an array",
        "[mcpServers.a] args: an array of strings is needed",
        "[mcpServers.a] env: a string at K, L is needed",
        "[mcpServers.a] disabled: true or false is needed",
        "[mcpServers.b] url: an address is needed",
        "[mcpServers.c] args[0]: NOWHERE is not set",
        "[mcpServers.c] args[1]: NOWHERE is not set",
        "[mcpServers.c] env.T: the client would ask for 'my key': set MY_KEY in the environment",
        "[mcpServers.d] headers.Host: it says how the request travels",
        "[mcpServers.d] headers.X: it must be ASCII text",
        "[mcpServers.e]: an object is needed",
        "[mcpServers.f] env: a name of a variable",
        "[mcpServers.g] command: a string without zero bytes",
    ):
        assert expected in said
    assert said.startswith("/home/mia/file.json: 13 problems; nothing was written")


def test_two_servers_of_one_name_are_a_mistake() -> None:
    """Clients would see one of them, and nobody knows which was meant."""
    with pytest.raises(SourceInvalid, match=r"\[mcpServers\.a\]: there are two servers of this name"):
        planned('{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}}}')


def test_a_server_can_be_left_out_with_its_mistakes() -> None:
    """What cannot be mended now holds nothing else up; a name that is none is a mistake."""
    text = '{"mcpServers": {"a": {"command": 5}, "b": {"command": "x"}}}'
    assert set(planned(text, skipped=frozenset({"a"})).providers) == {"b"}
    with pytest.raises(SourceInvalid, match="--skip c: there is no server of that name"):
        planned(text, skipped=frozenset({"a", "c"}))


def test_names_are_made_valid_and_distinct() -> None:
    """Also where nothing of a name can stay, and never the gateway's own."""
    servers = {
        name: {"command": "x"} for name in ("My Server!", "my-server", "…", "effectd", "é" * 99, "b" * 99)
    }
    made = planned(json.dumps({"mcpServers": servers}))
    assert list(made.providers) == [
        "my-server",
        "my-server-2",
        "mcp-server",
        "effectd-server",
        "mcp-server-2",
        "b" * 32,
    ]
    config = parse(rendered(made), Path("/etc/effectd/effectd.toml"))
    assert all(isinstance(provider, McpProviderTable) for provider in config.providers.values())


def test_headers_that_the_protocol_sends_itself_are_dropped() -> None:
    """A client that was told them sends them anyway."""
    headers = {"Accept": "x", "Content-Type": "application/json", "Mcp-Session-Id": "1", "X-Key": CANARY}
    made = planned(json.dumps({"mcpServers": {"a": {"url": "https://h/mcp", "headers": headers}}}))
    assert set(made.providers["a"].header_files) == {"X-Key"}


@pytest.mark.parametrize("key", ["timeout", "tool_timeout_sec"])
def test_that_a_call_may_take_longer_in_the_client_is_not_passed_over(key: str) -> None:
    """Whoever had waited ten minutes there would get `unknown` after one, and is told what to write."""
    text = json.dumps({"mcpServers": {"builds": {"command": "builds", key: 600}}})
    (note,) = planned(text).servers[0].notes
    assert key in note
    assert "execution_s" in note
