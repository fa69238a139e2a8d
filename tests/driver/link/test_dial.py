"""How the plane is dialled: the token, refusals, redirects, proxies, certificates."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from http import HTTPStatus
from ipaddress import ip_address
from pathlib import Path
from ssl import PROTOCOL_TLS_SERVER, SSLContext, VerifyMode

import anyio
import pytest
import structlog
from anyio.abc import SocketAttribute, SocketStream
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from driver.link.dial import shown_url
from driver.link.settings import LinkSettings
from tests.driver.link.stage import TOKEN, dead_after, eventually, linked, serving

pytestmark = pytest.mark.anyio


# ------------------------------------------------------------ the token


async def test_a_rotated_token_is_picked_up(tmp_path: Path) -> None:
    """The token file is read at every connect."""
    async with serving() as plane, linked(tmp_path, plane.url) as daemon:
        wire = await plane.accept()
        assert wire.headers["authorization"] == f"Bearer {TOKEN}"
        daemon.token_file.write_text("  another-one\n\n")
        wire.cut()
        again = await plane.accept()
        assert again.headers["authorization"] == "Bearer another-one"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "cannot be read (No such file or directory)"),
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"two words", "one word"),
        (b"line\r\nX-Forged: 1", "one word"),
        ("gehëim".encode(), "one word"),
        (b"x" * 20_000, "is longer than"),
    ],
)
async def test_without_a_token_nobody_is_dialled(tmp_path: Path, content: bytes | None, reason: str) -> None:
    """An unusable token file is named, with what to do; once it is mended, the link comes up."""
    token_file = tmp_path / "token"
    if content is not None:
        token_file.write_bytes(content)
    async with serving() as plane, linked(tmp_path, plane.url, token=None) as daemon:
        await eventually(lambda: daemon.link.statistics().last_error)
        error = daemon.link.statistics().last_error or ""
        assert reason in error
        assert "write the plane's token into it" in error
        assert plane.requests == []
        token_file.write_text(TOKEN)
        await plane.accept()


async def test_a_token_file_that_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    """A FIFO or a folder in its place blocks nothing."""
    token_file = tmp_path / "token"
    os.mkfifo(token_file)
    async with serving() as plane, linked(tmp_path, plane.url, token=None) as daemon:
        await eventually(lambda: "no regular file" in (daemon.link.statistics().last_error or ""))
        token_file.unlink()
        token_file.mkdir()
        await eventually(lambda: daemon.link.statistics().attempts >= 2)
        assert "no regular file" in (daemon.link.statistics().last_error or "")


async def test_a_readable_token_file_is_warned_of_once(tmp_path: Path) -> None:
    """A token that others can read is used, and said once."""
    with structlog.testing.capture_logs() as logs:
        async with serving() as plane, linked(tmp_path, plane.url) as daemon:
            daemon.token_file.chmod(0o644)
            for _ in range(3):
                (await plane.accept()).cut()
    assert [line["event"] for line in logs].count("token_readable_by_others") == 1


# ------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    "status", [HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.TOO_MANY_REQUESTS]
)
async def test_a_hopeless_refusal_waits_at_the_ceiling(tmp_path: Path, status: HTTPStatus) -> None:
    """With the same token the same answer would come: the next try is far away, and the process lives on."""
    async with serving() as plane:
        plane.refuse_with = status
        async with linked(tmp_path, plane.url) as daemon:
            await eventually(lambda: daemon.link.statistics().state == "waiting")
            await anyio.sleep(0.3)
            assert len(plane.requests) == 1
            assert f"HTTP {status.value}" in (daemon.link.statistics().last_error or "")


async def test_a_close_for_want_of_authority_waits_at_the_ceiling(tmp_path: Path) -> None:
    """4003 says over the socket what 401 says over HTTP; a token file that is gone changes nothing."""
    async with serving() as plane, linked(tmp_path, plane.url) as daemon:
        wire = await plane.accept()
        await wire.welcome()
        daemon.token_file.unlink()
        await wire.close(4003, "who are you")
        await eventually(lambda: daemon.link.statistics().state == "waiting")
        await anyio.sleep(0.3)
        assert len(plane.requests) == 1


async def test_a_token_that_was_rotated_meanwhile_is_tried_soon(tmp_path: Path) -> None:
    """After 401 the file is read again: another token is worth another try at once."""
    async with serving() as plane:
        plane.refuse_with = HTTPStatus.UNAUTHORIZED
        plane.on_request = partial((tmp_path / "token").write_text, "fresh")
        async with linked(tmp_path, plane.url):
            await eventually(lambda: plane.requests)
            plane.refuse_with = None
            wire = await plane.accept()
            assert wire.headers["authorization"] == "Bearer fresh"


async def test_other_refusals_are_tried_again_soon(tmp_path: Path) -> None:
    """A plane that is being deployed answers anything: the usual backoff."""
    async with serving() as plane:
        plane.refuse_with = HTTPStatus.NOT_FOUND
        async with linked(tmp_path, plane.url):
            for status in (HTTPStatus.BAD_GATEWAY, HTTPStatus.OK, None):
                await plane.asked_again()
                plane.refuse_with = status
            await (await plane.accept()).welcome()


async def test_redirects_are_not_followed(tmp_path: Path) -> None:
    """A redirect would carry the token to whoever it names: nobody is called there."""
    async with serving() as plane, serving() as elsewhere:
        plane.refuse_with, plane.location = HTTPStatus.MOVED_PERMANENTLY, elsewhere.url
        async with linked(tmp_path, plane.url) as daemon:
            for status in (HTTPStatus.FOUND, HTTPStatus.TEMPORARY_REDIRECT):
                await plane.asked_again()
                plane.refuse_with = status
            assert "redirects are not followed" in (daemon.link.statistics().last_error or "")
            assert elsewhere.requests == []


async def test_nothing_that_is_logged_or_shown_holds_the_token(tmp_path: Path) -> None:
    """Through refusals, cuts and rejections, no log line and no statistic shows it."""
    with structlog.testing.capture_logs() as logs:
        async with serving() as plane, linked(tmp_path, plane.url) as daemon:
            wire = await plane.accept()
            await wire.welcome()
            wire.cut()
            (await plane.accept()).cut()
            plane.refuse_with = HTTPStatus.FOUND
            seen = len(plane.requests)
            await eventually(lambda: len(plane.requests) > seen)
            await eventually(lambda: "HTTP 302" in (daemon.link.statistics().last_error or ""))
            assert TOKEN not in repr(daemon.link.statistics())
    assert len(logs) > 3
    assert TOKEN not in repr(logs)


# ------------------------------------------------------------ proxies


@pytest.fixture
def proxies_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every variable that could name a proxy names one that does not exist."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "ws_proxy", "wss_proxy", "socks_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
        monkeypatch.setenv(name.upper(), "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("proxies_in_the_environment")
async def test_the_environments_proxies_are_ignored(tmp_path: Path) -> None:
    """Whoever sets a proxy variable does not get to see the link."""
    async with serving() as plane, linked(tmp_path, plane.url):
        await (await plane.accept()).welcome()


async def test_the_configured_proxy_is_used(tmp_path: Path) -> None:
    """`control.proxy` is asked to CONNECT, and carries the link."""
    asked: list[bytes] = []

    async def proxy(target: int, near: SocketStream) -> None:
        async with (
            near,
            await anyio.connect_tcp("127.0.0.1", target) as far,
            anyio.create_task_group() as tasks,
        ):
            asked.append(await near.receive())
            await near.send(b"HTTP/1.1 200 OK\r\n\r\n")

            async def carry(source: SocketStream, sink: SocketStream) -> None:
                async for data in source:
                    await sink.send(data)
                tasks.cancel_scope.cancel()

            tasks.start_soon(carry, near, far)
            tasks.start_soon(carry, far, near)

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    port = listener.extra(SocketAttribute.local_port)
    async with serving() as plane, listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, partial(proxy, plane.port))

        def through(settings: LinkSettings) -> LinkSettings:
            return replace(settings, proxy=f"http://127.0.0.1:{port}")

        async with linked(tmp_path, plane.url, settings=through):
            await (await plane.accept()).welcome()
        tasks.cancel_scope.cancel()
    assert asked[0].startswith(f"CONNECT 127.0.0.1:{plane.port} ".encode())
    assert TOKEN.encode() not in asked[0]


# ------------------------------------------------------------ certificates


def certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """Write a self-signed certificate for 127.0.0.1, and its key. Returns both paths."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    cert_file, key_file = folder / f"{name}.pem", folder / f"{name}.key"
    cert_file.write_bytes(built.public_bytes(Encoding.PEM))
    key_file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return cert_file, key_file


def server_context(cert_file: Path, key_file: Path) -> SSLContext:
    """The plane's side of TLS."""
    context = SSLContext(PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert_file, key_file)
    return context


def secure(url: str) -> str:
    """The same place by TLS."""
    return url.replace("ws://", "wss://")


async def test_a_certificate_is_verified_against_the_configured_authority(tmp_path: Path) -> None:
    """With `ca_file` a private authority is trusted; without it the handshake fails, and says so."""
    cert_file, key_file = certificate(tmp_path, "plane")

    def trusting(settings: LinkSettings) -> LinkSettings:
        return replace(settings, ca_file=cert_file)

    async with serving(ssl=server_context(cert_file, key_file)) as plane:
        async with linked(tmp_path, secure(plane.url), settings=trusting):
            await (await plane.accept()).welcome()
        async with linked(tmp_path, secure(plane.url)) as daemon:
            await eventually(
                lambda: "certificate verify failed" in (daemon.link.statistics().last_error or "")
            )


async def test_a_client_certificate_is_shown(tmp_path: Path) -> None:
    """`client_cert_file` and `client_key_file` prove who the daemon is, where the plane asks for it."""
    cert_file, key_file = certificate(tmp_path, "plane")
    client_cert, client_key = certificate(tmp_path, "driver")
    context = server_context(cert_file, key_file)
    context.verify_mode = VerifyMode.CERT_REQUIRED
    context.load_verify_locations(client_cert)

    def proven(settings: LinkSettings) -> LinkSettings:
        return replace(settings, ca_file=cert_file, client_cert_file=client_cert, client_key_file=client_key)

    async with serving(ssl=context) as plane, linked(tmp_path, secure(plane.url), settings=proven):
        await (await plane.accept()).welcome()


def without_authority(settings: LinkSettings, folder: Path) -> LinkSettings:
    """A `ca_file` that does not exist."""
    return replace(settings, ca_file=folder / "absent.pem")


def with_a_token_for_certificate(settings: LinkSettings, folder: Path) -> LinkSettings:
    """A `client_cert_file` that holds something else."""
    return replace(settings, client_cert_file=folder / "token")


@pytest.mark.parametrize("broken", [without_authority, with_a_token_for_certificate])
async def test_unusable_certificate_files_are_named(
    tmp_path: Path, broken: Callable[[LinkSettings, Path], LinkSettings]
) -> None:
    """A file that TLS cannot use keeps the link down, and the message says which settings to check."""
    async with (
        serving() as plane,
        linked(tmp_path, secure(plane.url), settings=lambda settings: broken(settings, tmp_path)) as daemon,
    ):
        await eventually(lambda: daemon.link.statistics().attempts >= 2)
        assert "check control.ca_file" in (daemon.link.statistics().last_error or "")


async def test_a_plane_without_tls_is_told_apart(tmp_path: Path) -> None:
    """wss:// to a port that speaks no TLS fails within the deadline, in words."""
    async with serving() as plane, linked(tmp_path, secure(plane.url), settings=dead_after(1.0)) as daemon:
        await eventually(lambda: daemon.link.statistics().last_error)
        assert "cannot be reached" in (daemon.link.statistics().last_error or "")


# ------------------------------------------------------------ the rest


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("wss://plane.example/driver", "wss://plane.example/driver"),
        ("wss://user:secret@plane.example:8443/driver?key=secret#x", "wss://plane.example:8443/driver"),
    ],
)
def test_a_shown_url_holds_no_secret(url: str, shown: str) -> None:
    """User information, query and fragment are for the plane's eyes only."""
    assert shown_url(url) == shown


def test_limits_of_the_library_are_not_taken_from_the_environment() -> None:
    """`WEBSOCKETS_*` variables of whoever starts the daemon decide nothing, not even nonsense ones."""
    code = "import driver.link.dial; from websockets.asyncio import client; print(client.MAX_REDIRECTS)"
    environment = {**os.environ, "WEBSOCKETS_MAX_REDIRECTS": "nonsense"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True
    )
    assert done.stdout == "10\n"
