-- The histories that this file held before its present one. `seq` goes on counting in the file; on the wire the present
-- history begins again at 1. `base` is the seq before a history's first event, `last` that of its last one, `chain` the
-- chain as of that, and `acked` the watermark when it ended, all in the file's counting.
BEGIN IMMEDIATE;

CREATE TABLE histories (
  id INTEGER PRIMARY KEY,
  journal_id TEXT NOT NULL UNIQUE,
  base INTEGER NOT NULL CHECK (base >= 0),
  last INTEGER NOT NULL CHECK (last >= base),
  chain TEXT NOT NULL,
  acked INTEGER NOT NULL CHECK (acked BETWEEN base AND last),
  ended_at TEXT NOT NULL,
  digest TEXT NOT NULL
) STRICT;

-- What must not be forgotten beside a fence that stands, or is to be raised at the next start.
CREATE TABLE marks (
  name TEXT PRIMARY KEY,
  detail TEXT NOT NULL,
  at TEXT NOT NULL,
  digest TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- a command that is no call may have events in several histories
CREATE INDEX events_of_command ON events (command) WHERE command IS NOT NULL AND operation IS NULL;

PRAGMA user_version = 5;
COMMIT;
