"""The handlers, one module for each group of paths: each has `routes(service)`.

Part of `driver.local`; they import starlette, the store and `driver.local`, and not one another. A
handler checks its parameters first, then reads once, then shapes.
"""
