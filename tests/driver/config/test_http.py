"""HTTP providers in the configuration: what a request may be, found before any call."""

from pathlib import Path

import pytest

from driver.assembly import providers
from driver.config.errors import ConfigInvalid
from driver.config.load import parse
from driver.config.models import Config
from driver.core.attempts import Report
from driver.providers.http.provider import HttpProvider
from store.records import OperationId

SHOP = '[providers.shop]\nkind = "http"\nbase_url = "https://shop.example/v1"\n'
ORDER = "[providers.shop.tools.order]\n"


def parsed(text: str) -> Config:
    """Return the configuration that `text` is."""
    return parse(text, Path("/etc/effectd/effectd.toml"))


def problem(text: str) -> str:
    """Return the one problem of `text`."""
    with pytest.raises(ConfigInvalid) as raised:
        parsed(text)
    (only,) = raised.value.problems
    return str(only)


@pytest.mark.parametrize(
    "text",
    [
        ORDER + 'method = "=arguments.method"',
        ORDER + 'path = "/a/b/"',
        ORDER + 'path = "a%20b"',
        ORDER + "path = \"=join('/', ['a', arguments.id])\"",
        ORDER + 'headers = { Accept = "text/plain", X-Item = "=arguments.item", X-Empty = "" }',
        ORDER + 'json = [1, { a = "=arguments" }]',
        ORDER + "ok_status = [200, 303]",
        'key = "header:Idempotency-Key"\n' + ORDER + 'headers = { Accept = "x" }',
        'key = "argument:request_id"\n' + ORDER,
        'env = { A = "x" }\nenv_files = { B = "y" }\n' + ORDER,
    ],
)
def test_a_request_can_be_declared(text: str) -> None:
    """Each key takes what its contract says."""
    assert parsed(SHOP + text).providers["shop"].kind == "http"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (ORDER + 'method = "post"', '[providers.shop.tools.order] method: found "post"; allowed: GET, HEAD,'),
        (ORDER + 'method = "CONNECT"', '[providers.shop.tools.order] method: found "CONNECT"; allowed: GET,'),
        (ORDER + "method = 3", "[providers.shop.tools.order] method: found 3; allowed: GET,"),
        (ORDER + 'method = "=a["', '[providers.shop.tools.order] method: found "=a["; allowed: a JMESPath'),
        (
            ORDER + 'path = "/a?b=c"',
            '[providers.shop.tools.order] path: found "/a?b=c"; allowed: a path without',
        ),
        (ORDER + 'path = "/a#b"', '[providers.shop.tools.order] path: found "/a#b"; allowed: a path without'),
        (
            ORDER + 'path = "/a/../b"',
            '[providers.shop.tools.order] path: found "/a/../b"; allowed: a path without',
        ),
        (
            ORDER + 'headers = { Host = "x" }',
            "[providers.shop.tools.order] headers.Host: allowed: the name of a header that a tool may set",
        ),
        (
            ORDER + 'headers = { "a b" = "x" }',
            '[providers.shop.tools.order] headers."a b": allowed: the name of a header that a tool may set',
        ),
        (
            ORDER + 'headers = { X = "sec\\nret" }',
            "[providers.shop.tools.order] headers.X: allowed: a header's value, or one expression",
        ),
        (
            ORDER + "ok_status = [600]",
            "[providers.shop.tools.order] ok_status[0]: found 600; allowed: a whole",
        ),
        (
            ORDER + 'headers = { Accept = "x", accept = "y" }',
            "[providers.shop.tools.order] headers: Accept, accept are one header: keep one",
        ),
        (
            'key = "header:Idempotency-Key"\n' + ORDER + 'headers = { idempotency-key = "=key" }',
            "[providers.shop.tools.order] headers: Idempotency-Key carries the idempotency key",
        ),
        ('key = "header:Host"', '[providers.shop] key: found "header:Host"; it says how the request travels'),
        (
            'key = "meta"',
            '[providers.shop] key: found "meta", which calls of this provider have no place for',
        ),
        (
            'key = "sep3182"',
            '[providers.shop] key: found "sep3182", which calls of this provider have no place',
        ),
        ('cwd = "x"', "[providers.shop] cwd: belongs to a provider that starts programs"),
        ('roots = ["x"]', "[providers.shop] roots: belongs to a provider that starts programs"),
        ("trust_annotations = true", "[providers.shop] trust_annotations: unknown key"),
    ],
)
def test_what_cannot_be_a_request_is_refused_by_name(text: str, expected: str) -> None:
    """Before anything starts, with the key and what is allowed; a header's value is never shown."""
    found = problem(SHOP + text)
    assert found.startswith(expected)
    assert "sec" not in found.partition("allowed")[0]


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("ftp://x", 'found "ftp://x"; allowed: a URL that begins with http:// or https://'),
        ("https://user:pass@x", "allowed: a URL without user and password"),
        ("https://x/?token=hunter2", "allowed: a URL without a query"),
        ("https://x/#y", "allowed: a URL"),
    ],
)
def test_a_base_url_is_bare(url: str, expected: str) -> None:
    """No password and no query in it: both are where tokens are put."""
    found = problem(f'[providers.shop]\nkind = "http"\nbase_url = "{url}"')
    assert expected in found
    assert "hunter2" not in found
    assert "pass@" not in found


def test_a_base_url_is_required() -> None:
    """An API is somewhere."""
    assert problem('[providers.shop]\nkind = "http"') == "[providers.shop] base_url: missing, and required"


def never_late(operation_id: OperationId, attempt: int, report: Report) -> None:
    """Nothing is called here."""
    raise AssertionError((operation_id, attempt, report))


def test_an_http_table_becomes_a_provider() -> None:
    """Nothing is started, and nothing connected."""
    config = parsed(SHOP + ORDER)
    (provider,) = providers(config, never_late).values()
    assert isinstance(provider, HttpProvider)
    assert provider.name == "shop"
