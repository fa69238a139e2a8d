"""The shim: keeps one program, and outlives the daemon that asked for it.

Part of `driver.providers.command`, and a program of its own: run by `spawn`, in an interpreter without
`site`, with the standard library's builtin modules only. Whatever else it imported, every command would wait
for. That is why it has no dataclasses, no enums, no `json` and no `typing`.

Theory of operation
-------------------
The daemon hands down six descriptors: the plan (what to run), the link (a socket pair, until the program
runs), the control (a FIFO in the attempt's folder), the folder, the working folder, and the program's stdin.

1. It makes itself the reaper of all its descendants, opens the files for output, sets space aside for the
   record, and says `ready`. An end of the link now means that the daemon changed its mind, or died: nothing
   was executed, and nothing will be.
2. The daemon answers with the seconds that the program may take. A child is forked that waits; the record
   `started` is written, by rename; only then is the child released, and executes the program. So where there
   is no `started`, on a machine that was not rebooted and without a shim, the program never ran.
3. It waits for output, for the end, for the deadline, and for a byte from the control, which means cancel.
   Output beyond its limit is read and thrown away: the program never blocks on it.
4. Whatever ended the program, all its descendants are ended too. They cannot get away by daemonising: an
   orphan becomes the shim's child. When the kernel says that there is no child left, there is none at all.
5. The record `ended` is fsynced, renamed, its folder fsynced, and the shim exits. The control loses its only
   reader with that, which is what a daemon, this one or the next, waits for.

Nobody can make it exit but with SIGKILL; then the kernel kills the program too.
"""

import marshal
import os
import select
import sys
import time
import traceback_free  # placeholder
