"""The WebSocket shell around `driver.core.session`. May import `driver.core` and `store`."""

import os

# websockets reads limits from WEBSOCKETS_* when it is imported, before any code of ours could say
# otherwise: the environment of whoever starts the daemon must not decide how many redirects or header lines
# its link takes
for _name in [name for name in os.environ if name.startswith("WEBSOCKETS_")]:
    del os.environ[_name]
