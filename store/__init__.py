"""The journal: one SQLite file, owned by one task. The only code that touches it; imports nothing of ours.

Where to begin
--------------
`lifecycle` and `events` say what can happen. `journal` is the door: a caller hands in a function, which gets
a `View` (it asks) or a `Transaction` (it asks, and appends events), and is released when that is durable.

What an event goes through, all of it in one commit:

    transaction   looks whether it may happen now
    sealing       gives it seq, time and bytes (`wire`) and its place in the hash chain (`chain`)
    projection    says what it changes of its operation, from the record and the event alone
    tables        writes that, through `batches`, which makes few statements of many small writes
    consequences  appends what follows from it in the journal itself: a contradiction, a word about a parent
    writer        commits: one fsync for all units that waited; then `journal` releases their callers

What always holds
-----------------
Each line is a check of `effectd verify`, or has a test that takes it away. The numbers are the README's.

* **Events are the truth.** Their `seq` counts 1, 2, 3 … without a hole, but where `gaps` says what was
  pruned. Each carries the hash of all before it. None is ever changed; erasing one empties its body, keeps
  digest and chain, and leaves in `remains` what the projections are made of (I5, I6: `recorded`).
* **Everything else follows from them.** `commands`, `operations`, `attempts`, `evidence`, `runs` and
  `run_links` are what `tables` makes of the events, in the same transaction; `rebuild` runs the same code
  over all events, and `comparison` compares. Rows that no event repeats carry a digest of their own
  (`digested`).
* **A state moves by `lifecycle.MOVES`**, and the effect is what `lifecycle.judge` makes of the evidence (I7:
  `proofs`).
* **No attempt without its intent.** Attempts count 1, 2, 3 …, each with its `operation.started`. Another
  attempt of a write carries the same key, or follows proof that those before it did nothing (I1, I2:
  `intents`).
* **One receipt.** A command has at most one, and an operation that has ended has one (I4: `checks`).
* **Nobody hears of what is not durable.** Callers are released, and listeners told, after the commit's fsync.
  After an I/O error nothing more is written, and no outcome comes from memory (I5: `writer`).
* **One owner.** One locked folder, one process, one connection, one thread. Nothing opens the file by other
  means while it is in use (I10: `folder`, `connection`).
* **What is unsettled stays.** Only what is settled, acknowledged and wanted by nobody is pruned or erased; a
  command that was pruned leaves a tombstone, so that it is never executed again (I2: `retention`, `wanted`).
* **A secret stands in one place**, the `data` of its command, until that is settled and acknowledged. Digests
  of it are made under the folder's key (I12: `erasure`, `keys`).

The rooms
---------
words        values, declared, lifecycle, records, events, wire, chain, naming, marks, settings, statistics
asking       outline, view, plans, twins, rows, located
recording    transaction, sealing, cuts, projection, tables, written, batches, undoing, consequences,
             delegation, rollback
owning       journal, waiting, writer, connection, head, statements, wal, pace
pruning      retention, wanted, gaps, erasure, pieces, paths
opening      opening, folder, identity, files, creation, adoption, inspection, keys, schema, cutting,
             generation, durable, errors
looking      backup, rest, verify, findings, checks, recorded, proofs, intents, digested, histories,
             comparison, rebuild, apart, mending
"""
