"""Who is let in, and how two lives of one driver are told apart."""

from pathlib import Path

import anyio
import pytest
from websockets.exceptions import InvalidStatus

from tests.driver.plane.world import NOTE, Driver, Plane, copy_of, running

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(("token", "status"), [("", 401), ("wrong", 403), ("operator-secret", 403)])
async def test_only_the_drivers_token_opens_the_socket(driver: Driver, token: str, status: int) -> None:
    """Before the upgrade: 401 without a token, 403 with another one, the operators' included."""
    with pytest.raises(InvalidStatus) as caught:
        async with driver.socket(token):
            pass
    assert caught.value.response.status_code == status


async def test_a_rotated_token_counts_at_once(driver: Driver) -> None:
    """The token file is read again for every connection; an empty one lets nobody in."""
    path = driver.plane.folder / "driver.token"
    for text, status in (("new-secret", 403), ("", 503)):
        await anyio.Path(path).write_text(text)
        with pytest.raises(InvalidStatus) as caught:
            async with driver.socket():
                pass
        assert caught.value.response.status_code == status
    await anyio.Path(path).write_text("new-secret")
    async with driver.socket("new-secret"):
        pass


async def test_the_subprotocol_is_required(driver: Driver) -> None:
    """A client that does not offer effectd.v1 is no daemon."""
    with pytest.raises(InvalidStatus) as caught:
        async with driver.socket(subprotocols=None):
            pass
    assert caught.value.response.status_code == 400


async def test_a_new_journal_is_welcomed_with_nothing(driver: Driver) -> None:
    """The watermark of a journal that the plane has never seen is 0, and has no chain."""
    async with driver.session() as socket:
        assert (socket.welcome["acked_seq"], "acked_chain" in socket.welcome) == (0, False)
        assert socket.connection.subprotocol == "effectd.v1"


async def test_another_version_is_rejected(driver: Driver) -> None:
    """With a word that a newer daemon understands, and a close."""
    async with driver.socket() as socket:
        await socket.say('{"type":"hello","protocol":2,"unknown":[]}')
        assert (await socket.hear("reject"))["code"] == "unsupported_protocol"
        assert await socket.closing() == 4002


async def test_what_comes_before_hello_is_an_error(driver: Driver) -> None:
    """Nothing else means anything yet; a hello after it still does, a second one does not."""
    journal = driver.journal
    async with driver.socket() as socket:
        await socket.say("[]", b"\x00", journal.commit(NOTE))
        assert [(await socket.hear("error"))["code"] for _ in range(3)] == [
            "not_an_object",
            "binary_frame",
            "hello_expected",
        ]
        await socket.say(driver.hello())
        await socket.hear("welcome")
        await socket.say(driver.hello())
        assert (await socket.hear("error"))["code"] == "unexpected_hello"


async def test_text_that_is_no_frame_is_answered_and_survived(driver: Driver) -> None:
    """Malformed JSON, unknown types and binary frames cost an error frame each, and nothing else."""
    async with driver.session() as socket:
        await socket.say("{", '{"type":"nonsense"}', '{"type":"gap"}', b"{}", '{"a":1,"a":2}', '{"type":1}')
        codes = [(await socket.hear("error"))["code"] for _ in range(6)]
        assert codes == [
            "invalid_json",
            "unknown_type",
            "invalid_frame",
            "binary_frame",
            "duplicate_key",
            "invalid_frame",
        ]
        await socket.say(driver.journal.commit(NOTE))
        assert (await socket.hear("ack"))["seq"] == 1


async def test_an_error_frame_is_never_answered(driver: Driver) -> None:
    """Two ends that do not understand each other must not say so for ever."""
    async with driver.session() as socket:
        await socket.say('{"type":"error","code":"x","message":"y"}', '{"type":"error"}')
        await socket.silence()


async def test_a_frame_that_is_too_large_closes_the_socket(driver: Driver) -> None:
    """With 1009; the plane goes on."""
    async with driver.session() as socket:
        await socket.say('{"type":"error","code":"' + "x" * 1_048_576 + '"}')
        assert await socket.closing() == 1009
    async with driver.session():
        pass


async def test_a_later_life_supersedes_an_earlier_one(driver: Driver) -> None:
    """The earlier one is closed with 4001, and what it says is ignored from then on."""
    later = Driver(plane=driver.plane, journal=driver.journal)
    async with driver.session() as old, later.session() as new:
        assert await old.closing() == 4001
        await new.say(driver.journal.commit(NOTE))
        assert (await new.hear("ack"))["seq"] == 1


async def test_an_earlier_life_that_comes_back_gets_no_welcome(driver: Driver) -> None:
    """A welcome would confirm its history, and it might act beside its successor."""
    later = Driver(plane=driver.plane, journal=driver.journal)
    async with driver.session():
        pass
    async with later.session() as new, driver.socket() as old:
        await old.say(driver.hello())
        assert await old.closing() == 4001
        await new.say(driver.journal.commit(NOTE))
        assert (await new.hear("ack"))["seq"] == 1


async def test_which_life_is_later_survives_the_plane(driver: Driver, tmp_path: Path) -> None:
    """The order of lives is in the ledger: after a restart the earlier one still has to give way."""
    later = Driver(plane=driver.plane, journal=driver.journal)
    for life in (driver, later):
        async with life.session():
            pass
    async with running(await copy_of(driver.plane, tmp_path)) as plane:
        driver.plane = later.plane = plane
        async with later.session(), driver.socket() as old:
            await old.say(driver.hello())
            assert await old.closing() == 4001


async def test_an_earlier_life_is_welcome_when_its_successor_is_gone(driver: Driver) -> None:
    """An operator unfenced it because the other one will not come back; then it goes on."""
    later = Driver(plane=driver.plane, journal=driver.journal)
    for life in (driver, later):
        async with life.session():
            pass
    await _until_gone(driver.plane)
    async with driver.session():
        pass


async def test_the_same_life_replaces_its_own_socket(driver: Driver) -> None:
    """A half-open socket of the same boot is closed quietly: nobody is superseded."""
    async with driver.session() as old, driver.session() as new:
        assert await old.closing() == 1000
        await new.say(driver.journal.commit(NOTE))
        assert (await new.hear("ack"))["seq"] == 1


async def test_two_drivers_live_side_by_side(plane: Plane) -> None:
    """Lives are compared within one driver_id only."""
    one, two = Driver(plane=plane, driver_id="sbx-1"), Driver(plane=plane, driver_id="sbx-2")
    async with one.session() as left, two.session() as right:
        for driver, socket in ((one, left), (two, right)):
            await socket.say(driver.journal.commit(NOTE))
            assert (await socket.hear("ack"))["seq"] == 1
        listed = (await plane.get("/v1/drivers"))["items"]
        assert [(item["driver_id"], item["connected"]) for item in listed] == [
            ("sbx-1", True),
            ("sbx-2", True),
        ]
    await _until_gone(plane)


async def test_a_plane_that_stops_says_so(driver: Driver) -> None:
    """With 1012: the daemon may come back soon."""
    folder = driver.plane.folder / "other"
    folder.mkdir()
    async with running(folder) as plane:
        driver.plane = plane
        connection = driver.session()
        socket = await connection.__aenter__()
    assert await socket.closing() == 1012
    await connection.__aexit__(None, None, None)


async def _until_gone(plane: Plane) -> None:
    with anyio.fail_after(30):
        while any(item["connected"] for item in (await plane.get("/v1/drivers"))["items"]):  # noqa: ASYNC110
            await anyio.sleep(0.02)
