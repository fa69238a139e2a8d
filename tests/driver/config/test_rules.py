"""Contradictions: keys that are right alone, and wrong together."""

from pathlib import Path

import pytest

from driver.config.errors import ConfigInvalid
from driver.config.load import parse

CONTROL = '[control]\nscope = "s"\ntoken_file = "t"\n'
MCP = '[providers.x]\nkind = "mcp"\n'
STDIO = MCP + 'argv = ["x"]\n'
TOOL = "[providers.x.tools.t]\n"
COMPENSATE = "[providers.x.tools.t.compensate]\n"
SHELL = '[providers.x]\nkind = "command"\n[providers.x.tools.t]\nargv = ["a"]\n'
PROBE = '[providers.x.tools.t.probe]\nmatches = "a"\n'


def clashes(text: str) -> list[str]:
    """Return table and key of each contradiction in `text`."""
    try:
        parse(text, Path("/etc/effectd/effectd.toml"))
    except ConfigInvalid as error:
        return [str(problem) for problem in error.problems]
    return []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[driver]\nruntime_dir = "/' + "r" * 93 + '"', "[driver] runtime_dir: too long"),
        (CONTROL + 'url = "ws://plane.example"', "[control] url: ws:// sends the token in the clear"),
        (CONTROL + 'url = "ws://127.0.0.1.example"', "[control] url: ws:// sends the token in the clear"),
        (CONTROL + 'url = "ws://localhost"\nca_file = "c"', "[control] ca_file: means nothing with ws://"),
        (
            CONTROL + 'url = "wss://h"\nclient_key_file = "k"',
            "[control] client_key_file: belongs to a certificate",
        ),
        ("[journal]\nmax_bytes = 1000", "[journal] reserve_bytes: 16,000,000 leaves no room"),
        ('[gateway]\nlisten = "h:1"', "[gateway] token_file: missing, and required with listen"),
        ('[supervisor]\nmodel = "openai"', "[supervisor] model_name: missing"),
        ('[supervisor]\nmodel = "anthropic"\nmodel_name = "m"', "[supervisor] api_key_file: missing"),
        ('[supervisor]\nmodel = "command"', "[supervisor] argv: missing"),
        ('[supervisor]\nargv = ["x"]', '[supervisor] argv: belongs to model = "command"'),
        ('[supervisor]\nbase_url = "http://h"', "[supervisor] base_url: belongs to"),
        (
            '[supervisor]\nmodel = "openai"\nmodel_name = "m"\napi_key_file = "k"\nbase_url = "http://h/v1"',
            "[supervisor] base_url: http:// sends the key in the clear",
        ),
        (MCP, "[providers.x] argv: missing, as is url"),
        (STDIO + 'url = "http://h"', "[providers.x] argv: both argv and url are set"),
        (MCP + 'url = "http://h"\ncwd = "x"', "[providers.x] cwd: belongs to a server that is started"),
        (
            STDIO + 'env = { A = "x" }\nenv_files = { A = "x" }',
            "[providers.x] env_files: A stands in env too",
        ),
        (MCP + 'url = "http://h"\nurl_file = "u"', "[providers.x] argv: both url and url_file are set"),
        (MCP + 'url_file = "u"\ncwd = "."', "[providers.x] cwd: belongs to a server that is started with"),
        (
            STDIO + 'header_files = { A = "a" }',
            "[providers.x] header_files: belongs to a server that is reached",
        ),
        (
            MCP + 'url = "http://h"\nheader_files = { Accept = "a" }',
            "[providers.x] header_files: sets Accept, in which MCP sends something else",
        ),
        (
            MCP + 'url = "http://h"\nkey = "header:K"\nheader_files = { k = "a" }',
            "[providers.x] header_files: sets k, which carries the idempotency key",
        ),
        (
            MCP + 'url = "http://h"\nheader_files = { A = "a", a = "b" }',
            "[providers.x] header_files: has A twice",
        ),
        (STDIO + 'key = "header:K"', '[providers.x] key: found "header:K"'),
        (MCP + 'url = "http://h"\nkey = "header:Mcp-Method"', '[providers.x] key: found "header:Mcp-Method"'),
        ('[providers.x]\nkind = "command"\nkey = "meta"', '[providers.x] key: found "meta"'),
        (
            '[providers.x]\nkind = "http"\nbase_url = "http://h"\nkey = "sep3182"',
            '[providers.x] key: found "sep',
        ),
        (STDIO + TOOL + "idempotent = true", "[providers.x.tools.t] dedupe_horizon_s: missing"),
        (
            STDIO + TOOL + 'retry = "same-key"',
            '[providers.x.tools.t] retry: found "same-key", which needs idem',
        ),
        (
            STDIO + 'key = "none"\n' + TOOL + 'retry = "same-key"\nidempotent = true\ndedupe_horizon_s = 9',
            '[providers.x.tools.t] retry: found "same-key", which needs a key carrier',
        ),
        (
            STDIO + TOOL + 'receipt = "result.a[0].id"\nredact = ["arguments.a", "result.*.*.id"]',
            '[providers.x.tools.t] receipt: found "result.a[0].id", which redact withholds ("result.*.*.id")',
        ),
        (
            STDIO
            + TOOL
            + 'retry = "same-key"\nidempotent = true\ndedupe_horizon_s = 9\napproval = "required"',
            '[providers.x.tools.t] retry: found "same-key", which excludes approval',
        ),
        (
            STDIO + TOOL + 'effect = "read"\n[providers.x.tools.t.compensate]\ntool = "u"',
            "[providers.x.tools.t] compensate: belongs to a write",
        ),
        (
            STDIO + PROBE + 'tool = "u"',
            '[providers.x.tools.t.probe] tool: found "u"; allowed: a tool of the same',
        ),
        (
            STDIO + PROBE + 'tool = "t"',
            '[providers.x.tools.t.probe] tool: found "t"; allowed: a tool of the same',
        ),
        (
            STDIO + PROBE + 'tool = "u"\n[providers.x.tools.u]\neffect = "read"\napproval = "required"',
            '[providers.x.tools.t.probe] tool: found "u", which has approval = "required"',
        ),
        (
            STDIO + COMPENSATE + 'tool = "u"\n[providers.x.tools.u]\neffect = "read"',
            '[providers.x.tools.t.compensate] tool: found "u", which has effect = "read"',
        ),
        (
            STDIO + TOOL + 'redact = ["arguments.body"]\n' + COMPENSATE + 'tool = "u"\n'
            'arguments = { text = "=arguments.body" }',
            '[providers.x.tools.t.compensate] arguments: "text" may repeat what redact withholds',
        ),
        (
            STDIO + TOOL + 'redact = ["arguments.body"]\n' + COMPENSATE + 'tool = "u"\n'
            'arguments = { text = "=arguments.body" }\n'
            '[providers.x.tools.u]\nredact = ["arguments.other"]',
            '[providers.x.tools.t.compensate] arguments: "text" may repeat what redact withholds',
        ),
        (
            STDIO + 'key = "argument:mark"\n' + COMPENSATE + 'tool = "u"\narguments = { mark = "=key" }',
            '[providers.x.tools.t.compensate] arguments: sets "mark", which carries the key of',
        ),
        (
            SHELL + COMPENSATE + 'tool = "u"',
            '[providers.x.tools.t.compensate] tool: found "u"; allowed: a tool of the same',
        ),
    ],
)
def test_a_contradiction_names_the_key_to_change(text: str, expected: str) -> None:
    """Each rule fires on the smallest configuration that breaks it, and alone."""
    (only,) = clashes(text)
    assert expected in only


@pytest.mark.parametrize(
    "text",
    [
        '[driver]\nruntime_dir = "/' + "r" * 92 + '"',
        CONTROL + 'url = "ws://localhost:1/x"',
        CONTROL + 'url = "ws://127.0.0.1:1/x"',
        CONTROL + 'url = "ws://[::1]:1/x"',
        CONTROL + 'url = "ws://plane.example"\nallow_plaintext = true',
        CONTROL + 'url = "wss://h"\nclient_cert_file = "c"',
        '[gateway]\nlisten = "h:1"\ntoken_file = "t"',
        MCP + 'url = "http://h"\nkey = "header:K"',
        MCP + 'url_file = "address"\nkey = "header:K"\nheader_files = { Authorization = "token" }',
        STDIO + TOOL + "dedupe_horizon_s = 9",
        STDIO + TOOL + 'retry = "same-key"\nidempotent = true\ndedupe_horizon_s = 9',
        STDIO + PROBE + 'tool = "u"\n[providers.x.tools.u]\neffect = "read"',
        STDIO + COMPENSATE + 'tool = "served_only"',
        STDIO + COMPENSATE + 'tool = "t"',
        SHELL + COMPENSATE + 'tool = "t"',
        STDIO + TOOL + 'redact = ["arguments.body"]\n' + COMPENSATE + 'tool = "u"\n'
        'arguments = { text = "=arguments.body", id = "=receipt" }\n'
        '[providers.x.tools.u]\nredact = ["arguments.text"]',
        STDIO + TOOL + 'redact = ["result.body"]\n' + COMPENSATE + 'tool = "u"\n'
        'arguments = { text = "=arguments.body" }',
        STDIO + TOOL + 'receipt = "result.a"\nredact = ["result.a.id", "result.b", "arguments.a"]',
        STDIO + TOOL + 'receipt = "result.*.id | [0]"\nredact = ["result.a.id"]',
    ],
)
def test_what_a_rule_allows_is_no_contradiction(text: str) -> None:
    """Next to each rule's limit everything is as before."""
    assert clashes(text) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (CONTROL + "url = 3\nclient_key_file = 'k'", ["[control] client_key_file", "[control] url"]),
        (CONTROL + 'url = "ws://h"\nallow_plaintext = 3', ["[control] allow_plaintext"]),
        (STDIO + 'url = "x"\nkey = "?"', ["[providers.x] key", "[providers.x] url"]),
        (STDIO + TOOL + 'retry = "same-key"\nidempotent = 1', ["[providers.x.tools.t] idempotent"]),
        (
            STDIO + PROBE + 'tool = "u"\n[providers.x.tools.u]\neffect = "raed"',
            ["[providers.x.tools.u] effect"],
        ),
        ("[journal]\nmax_bytes = 1\nreserve_bytes = 0", ["[journal] reserve_bytes"]),
    ],
)
def test_a_rule_says_nothing_about_a_key_that_is_wrong_by_itself(text: str, expected: list[str]) -> None:
    """A wrong key is reported once, as wrong, and not again for what its value might have meant."""
    assert sorted(clash.partition(":")[0] for clash in clashes(text)) == expected
