"""The shim: a process that keeps one program, and outlives the daemon that asked for it.

Part of `driver.providers.command`, and programs of their own: the standard library is all that they import,
for `spawn` starts them without `site`.

Theory of operation
-------------------
An interpreter takes longer to start than most programs take to run. So the daemon starts one, the zygote,
which forks a shim for each command: with everything imported, a shim is there in a millisecond. The zygote
ends with the daemon; its shims do not.

The daemon hands down descriptors (`words.Descriptors`): the plan (what to run), the link (a socket, until the
program runs), the control (a FIFO in the attempt's folder), the folder, the working folder, the program's
stdin, the shim's own log, and a cgroup for the program, where there is one.

1. A shim makes itself the reaper of all its descendants, opens the files for output, sets space aside for the
   record, and says that it is ready. If the link ends now, the daemon changed its mind or died: nothing was
   executed, and nothing will be.
2. The daemon answers with the seconds that the program may take. A child is forked that waits; the record
   `started` is written, by rename; only then is the child released, and executes the program. So where there
   is no `started`, no shim, and was no reboot, the program never ran.
3. The shim waits for output, for the program's end, for the deadline, and for a byte from the control, which
   means cancel. Output beyond its limit is read and thrown away: the program never blocks on it.
4. Whatever ended the program, its descendants are ended too. They cannot get away by daemonising: an orphan
   becomes the shim's child. When the kernel says that there is no child left, there is no descendant either.
5. The record `ended` is fsynced, renamed, its folder fsynced, and the shim exits. With that the control loses
   its only reader, and that is what a daemon, this one or the next, waits for.

Only SIGKILL makes a shim exit early; then the kernel kills the program too.

What only reads has no outcome to lose, and no reason to outlive the daemon. It gets a leash instead
(`leash`), which ends it, and all that it started, when its link ends.
"""
