"""Carries out what `driver.core` decides, against the journal and the providers.

May import `driver.core`, `driver.providers` (its protocols), `driver.config` and `store`.

Where to begin
--------------
`engine` puts the parts together, on `surroundings`. A command comes in at a `desk`; `intake` decides about it
in one transaction; `dispatcher` takes a call through its steps, and its docstring has the order that I1 and
I2 rest on. Whatever may be lost with the process can be read again from the journal: `recovery` does.

    commands in       desk, offers (what is asked for), intake, load, lookalikes, capacity, seen_through
    a call            dispatcher, queue, running, assignments, calling, steps, intents, waits
    its provider      terms (its contract), withheld, readoption, observing, loss
    its end           reports, outcomes, endings, history, rolled_back
    other commands    commands (one function for each kind), approvals, verdicts, annotations, cancelling,
                      erasing
    receipts later    errands: probe_command, retrying, compensating, erasures; proof (what rule R goes by)
    probes            probe_loop (of what), agenda (when), probing (how), looks (what was seen)
    may it act        posture, fences, recovery, machine (a clock that nobody sets)
    what it says      announcements, alarms, chronicle, traces, tracing, news, remedies
    beside it all     pruning, supervision
"""
