"""`effectd conformance`: a battery that anyone points at an agent runtime, to see what it does with effects.

Part of `driver`; only `driver.cli` imports it, and it imports nothing of ours: a subject is judged from
outside, effectd like any other. Three parties:

    battery ──── start, deliver, outcome ────► adapter ── its own way ──► the runtime under test
       │          (lines of JSON)                                               │
       │ says how the next call is to go                                        │ MCP over stdio
       └──────────► world, an MCP server that writes down every effect ◄────────┘

`world`    the tools: a server that does what it is told to, and keeps a ledger, fsynced
`ledger`   what stands in it
`adapter`  the subject's process, asked by its three verbs, and killed
`cases`    what happens in each case
`verdict`  pure: what was seen, against what may honestly be said of it
`battery`  all cases, and the certificate
`adapters/`  those that come with effectd
"""
