"""Pure decisions: each a function of frozen values, or an object that is told things and asks for others.

No I/O, no clock, no randomness, no await, no logging: time arrives in the event, ids come from the shell.
May import `store`'s vocabulary (`records`, `lifecycle`, `events`, `declared`, `values`), and nothing else of
ours.

    the wire          frames, fields, codec, strictjson, canonical, schema
    the link          session (one connection), stream (its events), signals (its two vocabularies), backoff
    a command         commands (what each kind takes), admission, answers, identity, requester
    a contract        contracts, templates, expressions, redaction, scrubbing
    an attempt        attempts, dispatch (the last look), approval, classify, reports, landing
    its operation     conclusion (over all attempts), retry and revival (rule R), compensation
    what others say   probes, verdicts, unfencing
    HTTP              headers, targets, tokens
    errors            groups
"""
