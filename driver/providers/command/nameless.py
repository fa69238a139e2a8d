"""Files without a name, in memory: what a shim or a leash is told, and what a program reads.

Part of `driver.providers.command`; imports nothing of ours.
"""

import os
from contextlib import ExitStack


def memory(name: str, data: bytes, owner: ExitStack) -> int:
    """Return a descriptor of a nameless file in memory that holds `data`, to be read from its start."""
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC)
    owner.callback(os.close, descriptor)
    with os.fdopen(descriptor, "wb", closefd=False) as file:
        file.write(data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
