"""Programs of this machine as a provider: each call runs under a shim that outlives the daemon.

Part of `driver.providers`; imports `driver.core` and the store's values.
"""
