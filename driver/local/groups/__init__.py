"""The handlers, one module for each group of paths: each has `ENDPOINTS`.

Part of `driver.local`; they import starlette, the store and `driver.local`, and not one another. A handler
gets what was asked as a model that is valid already, reads once, then shapes. What it may answer and refuse
is declared beside it, in its endpoint, and from there stands in the OpenAPI document.
"""
