"""The file of the configuration: what is read, and what every mistake in it is called."""

import os
from pathlib import Path

import pytest

from driver.config.errors import ConfigInvalid, ConfigUnreadable
from driver.config.load import FILE_BYTES_MAX, load, parse
from driver.config.models import Config
from driver.config.providers import McpProviderTable

HERE = Path("/etc/effectd/effectd.toml")

CONTROL = """
[control]
url = "wss://plane.example/driver"
scope = "prod"
token_file = "token"
"""
ISSUES = """
[providers.issues]
kind = "mcp"
argv = ["mcp-server-issues"]
"""


def problems(text: str) -> list[str]:
    """Return each problem of `text` as it is shown."""
    with pytest.raises(ConfigInvalid) as raised:
        parse(text, HERE)
    return [str(problem) for problem in raised.value.problems]


def problem(text: str) -> str:
    """Return the only problem of `text`."""
    with pytest.raises(ConfigInvalid) as raised:
        parse(text, HERE)
    (only,) = raised.value.problems
    return str(only)


def issues(config: Config) -> McpProviderTable:
    """Return the provider `issues`, which is an MCP server."""
    provider = config.providers["issues"]
    assert isinstance(provider, McpProviderTable)
    return provider


def test_an_empty_file_is_a_whole_configuration() -> None:
    """Everything has a default; without [control] and [gateway] the daemon stands alone."""
    config = parse("", HERE)
    assert config.control is None
    assert config.gateway is None
    assert config.providers == {}
    assert config.driver.id
    assert config.scope == config.driver.id
    assert config.work_dir == Path("/var/lib/effectd/work")
    assert config.operator_socket == Path("/run/effectd/operator.sock")
    assert config.inspect_socket == Path("/run/effectd/inspect.sock")


def test_the_scope_is_the_planes() -> None:
    """With a plane, operation ids are unique within its name."""
    assert parse(CONTROL, HERE).scope == "prod"


def test_relative_paths_count_from_the_files_folder() -> None:
    """Where the daemon is started changes nothing about where its files are."""
    text = '[driver]\nstate_dir = "state"\nruntime_dir = "../run"\n' + CONTROL
    text += '[providers.issues]\nkind = "mcp"\nargv = ["x"]\ncwd = "work"\nenv_files = { A = "a" }\n'
    config = parse(text, Path("/srv/here/effectd.toml"))
    assert config.driver.state_dir == Path("/srv/here/state")
    assert config.driver.runtime_dir == Path("/srv/run")
    assert config.control is not None
    assert config.control.token_file == Path("/srv/here/token")
    assert issues(config).cwd == Path("/srv/here/work")
    assert issues(config).env_files == {"A": Path("/srv/here/a")}


def test_a_relative_name_of_the_file_still_gives_absolute_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--config effectd.toml` counts from the folder that it was found in."""
    monkeypatch.chdir(tmp_path)
    Path("effectd.toml").write_text('[driver]\nstate_dir = "state"\n')
    assert load(Path("effectd.toml")).driver.state_dir == tmp_path / "state"


@pytest.mark.parametrize("text", ["", "\N{BOM}[driver]\n", "[driver]\r\nmax_inflight = 2\r\n"])
def test_text_from_any_editor_is_read(tmp_path: Path, text: str) -> None:
    """A byte order mark and CRLF are no mistakes."""
    file = tmp_path / "effectd.toml"
    file.write_bytes(text.encode())
    assert load(file).control is None


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """The error names the file, and how to name another."""
    with pytest.raises(ConfigUnreadable, match=r"effectd\.toml: there is no such file; .*--config"):
        load(tmp_path / "effectd.toml")


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    """Naming the folder is a mistake that is named."""
    with pytest.raises(ConfigUnreadable, match="is a folder"):
        load(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_forbidden_file_says_whose_mode_to_change(tmp_path: Path) -> None:
    """A file that may not be read is no crash."""
    file = tmp_path / "effectd.toml"
    file.write_text("")
    file.chmod(0)
    with pytest.raises(ConfigUnreadable, match="may not be read by user"):
        load(file)


def test_a_name_with_a_zero_byte_is_no_crash() -> None:
    """What the kernel would not take as a path is refused like a missing file."""
    with pytest.raises(ConfigUnreadable, match="cannot be read"):
        load(Path("a\0b"))


def test_a_path_through_a_file_is_no_crash(tmp_path: Path) -> None:
    """An error of the file system that has no text of its own still names the file."""
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigUnreadable, match="cannot be read"):
        load(tmp_path / "file" / "effectd.toml")


def test_an_endless_file_is_refused() -> None:
    """A device, or a log named by mistake, does not fill the memory."""
    with pytest.raises(ConfigUnreadable, match=f"larger than {FILE_BYTES_MAX:,} bytes"):
        load(Path("/dev/zero"))


def test_text_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    """The error says at which byte."""
    file = tmp_path / "effectd.toml"
    file.write_bytes(b"# \xff\xfe\n")
    with pytest.raises(ConfigUnreadable, match=r"not UTF-8 text \(byte 2\)"):
        load(file)


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("[driver\n", "line 1"),
        ("a = ", "Invalid value"),
        ("a = 1\na = 2\n", "Cannot overwrite"),
        ("a = " + "[" * 5_000, "nested too deeply"),
        ("a = " + "9" * 5_000, "line 1: a number of more than 4,300 digits"),
        ("a = 2026-13-45", "not TOML"),
    ],
    ids=["header", "value", "twice", "deep", "long", "date"],
)
def test_what_is_not_toml_is_one_problem(text: str, detail: str) -> None:
    """A file that cannot be parsed at all says where."""
    assert detail in problem(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "[driver]\nmax_inflght = 3",
            "[driver] max_inflght: unknown key; did you mean max_inflight? allowed: allow",
        ),
        (
            "[provider.x]",
            "top level provider: unknown key; did you mean providers? allowed: control, driver,",
        ),
        ("[driver]\nzzz = 3", "[driver] zzz: unknown key; allowed: allow_self_approval, approvals_max,"),
        ("driver = 3", "top level driver: found 3; allowed: a table"),
        ("providers = []", "top level providers: found an array; allowed: a table"),
        ("[driver]\nid = 5", "[driver] id: found 5; allowed: a string"),
        ('[driver]\nid = ""', '[driver] id: found ""; allowed: a string of 1 to'),
        (f'[driver]\nid = "{"x" * 257}"', "allowed: a string of 1 to 256 characters"),
        ('[driver]\nid = "a\\nb"', r'[driver] id: found "a\u000ab"; allowed: a string of 1 to'),
        ("[driver]\nmax_inflight = 0", "[driver] max_inflight: found 0; allowed: a whole number from 1"),
        ("[driver]\nmax_inflight = 1.5", "[driver] max_inflight: found 1.5; allowed: a whole number from 1"),
        (
            "[driver]\nmax_inflight = true",
            "[driver] max_inflight: found true; allowed: a whole number from 1",
        ),
        (f"[driver]\nqueue_max = {2**63}", "[driver] queue_max: found 9223372036854775808; allowed: a whole"),
        (
            f"[driver]\nmax_inflight = {'9' * 5_000}",
            "line 2: a number of more than 4,300 digits; allowed: at most",
        ),
        (f"[driver]\nid = 'x'\ndrain_s = -{'1_2' * 4_000}", "line 3: a number of more than 4,300 digits;"),
        (f"[driver]\nqueue_max = {10**200}", "[driver] queue_max: found a whole number of very many digits;"),
        (
            "[driver]\nallow_self_approval = 1",
            "[driver] allow_self_approval: found 1; allowed: true or false",
        ),
        ('[driver]\nstate_dir = "~/x"', '[driver] state_dir: found "~/x"; allowed: an absolute path,'),
        ('[driver]\nstate_dir = ["x"]', "[driver] state_dir: found an array; allowed: the path of"),
        ("[driver]\ndrain_s = 0", "[driver] drain_s: found 0; allowed: a finite number of seconds above 0"),
        ("[driver]\ndrain_s = -1", "[driver] drain_s: found -1; allowed: a finite number"),
        ("[driver]\ndrain_s = inf", "[driver] drain_s: found inf; allowed: a finite number"),
        ("[driver]\ndrain_s = nan", "[driver] drain_s: found nan; allowed: a finite number"),
        ("[driver]\ndrain_s = true", "[driver] drain_s: found true; allowed: a finite number"),
        ("[driver]\ndrain_s = 1e300", "[driver] drain_s: found 1e+300; allowed: a finite number"),
        (
            "[driver]\ndrain_s = 2026-01-01",
            "[driver] drain_s: found a date or time; allowed: a finite number",
        ),
        (
            "[journal]\nretention_days = 0",
            "[journal] retention_days: found 0; allowed: a finite number of days",
        ),
        (
            '[log]\nlevel = "loud"',
            '[log] level: found "loud"; allowed: "debug", "info", "warning" or "error"',
        ),
        ('[gateway]\nlisten = "8931"', '[gateway] listen: found "8931"; allowed: HOST:PORT'),
        ('[gateway]\nlisten = "h:99999"', '[gateway] listen: found "h:99999"; allowed: HOST:PORT'),
        ("[supervisor]\nargv = []", "[supervisor] argv: found an array; allowed: an array that is not empty"),
        (
            "[providers.issues]",
            '[providers.issues] kind: missing, and required; allowed: "mcp", "command", "http"',
        ),
        ('[providers.issues]\nkind = "x"', '[providers.issues] kind: found "x"; allowed: "mcp",'),
        ("[providers.issues]\nkind = 1", '[providers.issues] kind: found 1; allowed: "mcp",'),
        ("[providers]\nissues = 1", "[providers] issues: found 1; allowed: a table"),
        (
            '[providers."My Issues"]\nkind = "mcp"\nargv = ["x"]',
            '[providers."My Issues"]: the name is wrong; allowed: a provider\'s name of lower-case',
        ),
        (f"{ISSUES}tools = 1", "[providers.issues] tools: found 1; allowed: a table"),
        (f"{ISSUES}tools.x = 1", "[providers.issues.tools] x: found 1; allowed: a table"),
        (f"{ISSUES}env = {{ A = 5 }}", "[providers.issues] env.A: allowed: a string without zero bytes"),
        (
            f'{ISSUES}env = {{ "A=B" = "x" }}',
            '[providers.issues] env."A=B": allowed: the name of an environment',
        ),
        (f'{ISSUES}key = "header:"', '[providers.issues] key: found "header:"; allowed: "none", "meta",'),
        (f"{ISSUES}roots = [1]", "[providers.issues] roots[0]: found 1; allowed: the path of"),
        (
            f"{ISSUES}tools.x.effect = 1",
            '[providers.issues.tools.x] effect: found 1; allowed: "write" or "read"',
        ),
        (
            f'{ISSUES}tools."a.b".efect = 1',
            '[providers.issues.tools."a.b"] efect: unknown key; did you mean effect?',
        ),
        (
            f'{ISSUES}tools.x.receipt = "a["',
            '[providers.issues.tools.x] receipt: found "a["; allowed: a JMESPath',
        ),
        (f'{ISSUES}tools.x.receipt = ""', 'receipt: found ""; allowed: a JMESPath expression of 1 to'),
        (
            f'{ISSUES}tools.x.redact = ["body"]',
            '[providers.issues.tools.x] redact[0]: found "body"; allowed: a dot',
        ),
        (f"{ISSUES}key = 1", '[providers.issues] key: found 1; allowed: "none", "meta",'),
        (
            f'{ISSUES}tools."".effect = "read"',
            '[providers.issues.tools.""]: the name is wrong; allowed: a tool',
        ),
        ('[gateway]\nlisten = "[::1"', '[gateway] listen: found "[::1"; allowed: HOST:PORT'),
        (f'{ISSUES}tools.x.receipt = "f(a)"', "there is no function f()"),
    ],
)
def test_a_mistake_names_table_key_found_and_allowed(text: str, expected: str) -> None:
    """Whoever reads the error needs no other document to mend the file."""
    assert expected in problem(text)


@pytest.mark.parametrize("key", ["url", "scope", "token_file"])
def test_the_plane_needs_its_three_keys(key: str) -> None:
    """[control] without url, scope or token_file names the missing one."""
    text = "\n".join(line for line in CONTROL.splitlines() if not line.startswith(key))
    assert problem(text) == f"[control] {key}: missing, and required"


@pytest.mark.parametrize(
    "url",
    [
        "http://plane.example",
        "plane.example",
        "wss://",
        "wss://h:99999",
        "wss://h:0",
        "wss://h/#f",
        "wss://a b",
    ],
)
def test_only_web_socket_addresses_reach_a_plane(url: str) -> None:
    """Anything but ws:// and wss:// with a host is refused."""
    assert "allowed: a URL that begins with ws:// or wss://" in problem(
        CONTROL.replace("wss://plane.example/driver", url)
    )


def test_the_scheme_of_an_address_has_no_case() -> None:
    """RFC 3986, 3.1: whoever writes WSS means TLS, and whoever writes WS shows the token."""
    control = parse(CONTROL.replace("wss:", "WSS:"), HERE).control
    assert control is not None
    assert control.url.startswith("wss:")
    assert "in the clear" in problem(CONTROL.replace("wss:", "WS:"))


def test_every_mistake_is_reported() -> None:
    """Wrong keys, contradictions and what is not built come together, by table."""
    found = problems(
        '[control]\nurl = "ws://plane.example"\nscope = ""\n'
        "[driver]\nid = 1\nqueue = 2\n"
        + ISSUES
        + 'url = "https://x"\n[providers.issues.tools.t]\nidempotent = true\neffect = "w"\n'
    )
    assert [text.partition(":")[0] for text in found] == [
        "[control] scope",
        "[control] token_file",
        "[control] url",
        "[driver] id",
        "[driver] queue",
        "[providers.issues] argv",
        "[providers.issues.tools.t] effect",
        "[providers.issues.tools.t] dedupe_horizon_s",
    ]


def test_an_error_shows_no_secret() -> None:
    """What may be a secret put into the wrong place stays out of the text."""
    text = (
        CONTROL.replace("plane.example", "bob:hunter2@plane.example")
        + 'token = "hunter2"\n'
        + ISSUES
        + 'env = { PASSWORD = "hunter2\\u0000" }\nenv_files = { PASSWORD = "~hunter2" }\n'
    )
    found = problems(text)
    assert len(found) == 4
    assert "hunter2" not in "\n".join(found)


def test_the_text_of_the_error_lists_the_problems() -> None:
    """The first line counts them and names the file; each has a line of its own."""
    with pytest.raises(ConfigInvalid) as raised:
        parse("a = 1\nb = 2\n", HERE)
    lines = str(raised.value).splitlines()
    assert lines[0] == "/etc/effectd/effectd.toml: 2 problems in the configuration"
    assert [line[:14] for line in lines[1:]] == ["  top level a:", "  top level b:"]
