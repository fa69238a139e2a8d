"""A request's target, in the form that routes are written in."""

import pytest

from driver.core.targets import take_origin_form


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("/v1/status", "/v1/status"),
        ("/x://y/z", "/x://y/z"),
        ("http://host/v1/status", "/v1/status"),
        ("HTTPS://user@host:1/a/b", "/a/b"),
        ("http://host", "/"),
        ("http://", "/"),
        ("ftp://host/a", "ftp://host/a"),
        ("*", "*"),
    ],
)
def test_only_a_whole_url_of_http_is_changed(target: str, path: str) -> None:
    """Its scheme and its host say nothing that the socket has not said."""
    scope = {"path": target, "raw_path": target.encode()}
    take_origin_form(scope)
    assert scope == {"path": path, "raw_path": path.encode()}
