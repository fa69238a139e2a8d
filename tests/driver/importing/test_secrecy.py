"""What is taken for a secret."""

import pytest

from driver.importing.secrecy import Hidden, Plain, Word, is_switch, parts, url_is_secret


@pytest.mark.parametrize(
    ("words", "hidden"),
    [
        (["npx", "-y", "@scope/server@1.2.3", "/home/mia/Documents/2024-11-05"], []),
        (["server", "--port", "8080", "--transport=stdio", "-v"], []),
        (["server", "--api-key", "abc"], ["abc"]),
        (["server", "--api-key=abc"], ["abc"]),
        (["server", "--token", "--verbose"], []),
        (["server", "-H", "X: y"], ["X: y"]),
        (["server", "Authorization: Bearer x"], ["Authorization: Bearer x"]),
        (["docker", "run", "-e", "NAME=value", "-e", "DEBUG=true"], ["value"]),
        (["server", "sk-abc"], ["sk-abc"]),
        (["server", "0b5e8a52-9f6c-4f0e-8b1c-3d9a2f4e6b70"], ["0b5e8a52-9f6c-4f0e-8b1c-3d9a2f4e6b70"]),
        (["server", "a1b2c3d4e5f6a7b8c9d0"], ["a1b2c3d4e5f6a7b8c9d0"]),
        (["server", "postgres://u:p@h/db"], ["postgres://u:p@h/db"]),
        (["server", "postgres://h/db"], []),
        (["server", "--url=https://h/mcp?key=x"], ["https://h/mcp?key=x"]),
        (["server", "--smtp-pass", "abc"], ["abc"]),
        (["sh", "-c", "export API_KEY=abc; exec server"], ["export API_KEY=abc; exec server"]),
        (["sh", "-c", "cd /srv && server --password 'abc'"], ["cd /srv && server --password 'abc'"]),
        (["sh", "-c", "remote https://h --header 'X-Key: abc'"], ["remote https://h --header 'X-Key: abc'"]),
        (["sh", "-c", "cd '/srv/my files' && exec server --token $TOKEN --port 8080"], []),
        (["server", "Server=h;User Id=sa;Password=abc"], ["h;User Id=sa;Password=abc"]),
    ],
)
def test_a_word_is_cut_where_its_secret_begins(words: list[str], hidden: list[str]) -> None:
    """What may be read stays, so that a person sees what is started."""
    cut = parts([Word(word) for word in words])
    assert [part.text for word in cut for part in word if isinstance(part, Hidden)] == hidden
    assert ["".join(part.text for part in word) for word in cut] == words


def test_what_came_from_a_variable_is_a_secret() -> None:
    """Whatever it looks like."""
    assert parts([Word("x", foreign=True), Word("--region=eu", foreign=True), Word("y")]) == [
        (Hidden("x"),),
        (Plain("--region="), Hidden("eu")),
        (Plain("y"),),
    ]


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("DEBUG", "true", True),
        ("LOG_LEVEL", "INFO", True),
        ("PORT", "8080", True),
        ("EMPTY", "", True),
        ("NAME", "mia", False),
        ("PIN", "1234", False),
        ("DB_PASSWORD", "test", False),
        ("SMTP_PASS", "12345", False),
        ("NUMBER", "123456", False),
    ],
)
def test_only_a_switch_is_shown(name: str, value: str, shown: bool) -> None:
    """Every other value of a variable goes to a file."""
    assert is_switch(name, value) is shown


@pytest.mark.parametrize(
    ("url", "secret"),
    [
        ("https://h/mcp", False),
        ("https://h/mcp?limit=10&format=json", False),
        ("https://h/mcp?api_key=x", True),
        ("https://h/mcp?x=a1b2c3d4e5f6a7b8c9d0", True),
        ("https://h/mcp?bare", False),
        ("https://h/s/a1b2c3d4e5f6a7b8c9d0/mcp", True),
        ("https://u:p@h/", True),
        ("https://[", True),
    ],
)
def test_an_address_is_a_secret_where_it_gives_access(url: str, secret: bool) -> None:
    """By a parameter, a segment or a password in it."""
    assert url_is_secret(url) is secret
