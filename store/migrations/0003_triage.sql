-- What the supervisor must not forget over a restart: how often it has asked about a run, and what reading commands
-- saw around an attempt. Neither is in an event: the first is nobody else's, the second can be large.
BEGIN IMMEDIATE;

CREATE TABLE triages (
  run INTEGER PRIMARY KEY REFERENCES runs (id),
  attempts INTEGER NOT NULL CHECK (attempts > 0),
  not_before TEXT NOT NULL,
  digest TEXT NOT NULL
) STRICT;

CREATE TABLE observations (
  id INTEGER PRIMARY KEY,
  operation INTEGER NOT NULL REFERENCES operations (id),
  attempt INTEGER NOT NULL CHECK (attempt > 0),
  side TEXT NOT NULL CHECK (side IN ('before', 'after')),
  at TEXT NOT NULL,
  body TEXT NOT NULL,
  digest TEXT NOT NULL
) STRICT;

CREATE UNIQUE INDEX observations_of_operation ON observations (operation, attempt, side);

CREATE INDEX operations_unsettled_of_run ON operations (run) WHERE listed = 1;

PRAGMA user_version = 3;
COMMIT;
