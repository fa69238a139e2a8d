"""Who is behind a call that came through the gateway: a member of its command's data, kept with it.

Part of `driver.core`, pure: imports the store's values. No person may decide about a call that they made
themselves (`allow_self_approval`): so it is written down, where a restart finds it, before anybody is asked.
"""

import json
from typing import Final

from store.records import JsonObject, StoredData

REQUESTER: Final = "requester_uid"
"""The member; the commands of a plane have none."""


def requested(uid: int) -> JsonObject:
    """Return the member for a call of this uid."""
    return {REQUESTER: uid}


def requester_of(data: StoredData | None) -> int | None:
    """Return the uid behind a call; None where it came from elsewhere, or its data was erased."""
    if data is None or data.body is None:
        return None
    found = json.loads(data.body).get(REQUESTER)
    return found if isinstance(found, int) and not isinstance(found, bool) else None
