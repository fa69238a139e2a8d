"""What went wrong, out of the groups that task groups wrap it in.

Part of `driver.core`, pure: imports nothing of ours.
"""

from typing import cast


def innermost(error: BaseException) -> BaseException:
    """Return the exception that `error` is about: of nested groups, the first that is none."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error
