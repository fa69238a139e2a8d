"""Programs of this machine as a provider: each call runs under a shim that outlives the daemon.

Part of `driver.providers`; imports `driver.core` and the store's values. The shim and its kin are programs of
their own, in `shim`; docs/decisions says why there is one.

    provider   the `Provider`: calls, the attempts of earlier lives, what is cleaned up
    launch     from a call to what the kernel is told        settings  what is configured
    spawn      starts a shim                                 tether    the daemon's end of one
    zygote     what forks shims, always warm                 nameless  files without a name, in memory
    spool      one folder for each attempt                   records   what stands in it
    findings   what an attempt came to, read from there      errors    what is wrong before anything runs
    cgroup     one for each command, where there may be      remains   what a killed shim left, without one
    looking    `evidence`: programs that only read           leash     the daemon's end of one of those
"""
