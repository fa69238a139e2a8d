-- What is left of what was pruned or erased. No event repeats these rows: each carries a digest of its own.
BEGIN IMMEDIATE;

-- A command that was pruned with all its events: it is answered `retired`, never executed. The columns from `args_digest`
-- to `effect_by` are those of a call's operation; `seq` is its receipt's.
CREATE TABLE tombstones (
  id INTEGER PRIMARY KEY,
  command_id TEXT NOT NULL UNIQUE,
  run INTEGER REFERENCES runs (id),
  kind TEXT NOT NULL,
  seq INTEGER NOT NULL,
  content_digest TEXT NOT NULL,
  operation_id TEXT,
  args_digest TEXT,
  write INTEGER,
  state TEXT,
  effect TEXT,
  effect_by TEXT,
  pruned_at TEXT NOT NULL,
  digest TEXT NOT NULL
) STRICT;
CREATE INDEX tombstones_alike ON tombstones (run, args_digest);

-- Events that were pruned: all from `first` to `last`, between two that are kept. `chain` is as of `last`, so that the
-- next event can be held against it.
CREATE TABLE gaps (
  first INTEGER PRIMARY KEY,
  last INTEGER NOT NULL UNIQUE CHECK (last >= first),
  chain TEXT NOT NULL,
  digest TEXT NOT NULL
) STRICT;

-- What a run was when something of it was last pruned: a rebuild of the projections begins here. `resumes` are the
-- rowids of the runs that it resumes, as a JSON list.
CREATE TABLE traces (
  run INTEGER PRIMARY KEY REFERENCES runs (id),
  run_id TEXT NOT NULL,
  ended INTEGER NOT NULL,
  outcome TEXT,
  first_at TEXT NOT NULL,
  last_at TEXT NOT NULL,
  resumes TEXT NOT NULL,
  digest TEXT NOT NULL
) STRICT;

-- Commands whose content was erased on demand, or is to be (`done` = 0).
CREATE TABLE erasures (
  command INTEGER PRIMARY KEY REFERENCES commands (id),
  done INTEGER NOT NULL CHECK (done IN (0, 1))
) STRICT;
CREATE INDEX erasures_due ON erasures (command) WHERE done = 0;

-- An event whose `body` was erased, without what had to go: what a rebuild of the projections needs.
CREATE TABLE remains (
  seq INTEGER PRIMARY KEY,
  body BLOB NOT NULL,
  digest TEXT NOT NULL
) STRICT;

CREATE INDEX events_alone ON events (run, seq) WHERE command IS NULL AND operation IS NULL;
-- for the foreign keys, which are looked at when their row is pruned
CREATE INDEX operations_of_command ON operations (command);
CREATE INDEX commands_of_run ON commands (run);
CREATE INDEX run_links_of_resumed ON run_links (resumes);

PRAGMA user_version = 4;
COMMIT;
