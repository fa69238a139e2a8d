"""Pure decisions: frames, session, admission, dispatch, classification.

No I/O, no clock, no randomness, no await, no logging: time arrives in the event, ids come from the shell.
May import `store.records`, `store.lifecycle` and `store.events`, and nothing else of ours.
"""
