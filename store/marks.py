"""Names of the marks that a journal can bear beside its fence. They go with it.

Part of `store`, pure.
"""

from typing import Final

SUPERSEDED: Final = "superseded"
"""Another life of this driver has taken over, beside a fence of another reason."""
TOLD: Final = "told"
"""The event about a fence that this file was given while nobody had it open, by a backup, is recorded."""
