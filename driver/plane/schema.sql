-- What a control plane must never forget. A row of `events` is one event exactly as it came over the wire.

CREATE TABLE drivers (
  driver_id TEXT PRIMARY KEY,
  hello     TEXT NOT NULL,              -- its last one, as JSON
  seen_at   TEXT NOT NULL
) STRICT;

-- Process lives in the order of their first `hello`: of two that say the same driver_id, the later is the newer life.
CREATE TABLE lives (
  id        INTEGER PRIMARY KEY,
  driver_id TEXT NOT NULL,
  boot_id   TEXT NOT NULL,
  UNIQUE (driver_id, boot_id)
) STRICT;

-- The watermark of each journal: every event up to `seq` is here (or was pruned, or refused), and `chain` says which.
CREATE TABLE journals (
  journal_id TEXT PRIMARY KEY,
  driver_id  TEXT NOT NULL,
  seq        INTEGER NOT NULL DEFAULT 0,
  chain      TEXT NOT NULL
) STRICT;

CREATE TABLE events (
  id         INTEGER PRIMARY KEY,       -- the order of arrival, over all journals
  journal_id TEXT NOT NULL,
  seq        INTEGER NOT NULL,
  refused    INTEGER NOT NULL,          -- 1: it was nacked `invalid`, and is kept as evidence only
  body       TEXT NOT NULL,
  UNIQUE (journal_id, seq)
) STRICT;

-- Everything that was asked for: through the plane, or in the sandbox itself (its gateway, the daemon's own commands).
CREATE TABLE commands (
  id             INTEGER PRIMARY KEY,   -- the order in which the plane hands them out
  command_id     TEXT NOT NULL UNIQUE,
  origin         TEXT NOT NULL,         -- plane, gateway or local
  driver_id      TEXT,                  -- null: whichever driver comes first
  run_id         TEXT,
  created_at     TEXT NOT NULL,
  -- what the plane was given
  kind           TEXT,
  data           TEXT,
  expires_in_ms  INTEGER,
  traceparent    TEXT,
  content_digest TEXT,
  -- what the driver has said since
  conflict       INTEGER NOT NULL DEFAULT 0,  -- it knows this id with other content
  accepted       INTEGER NOT NULL DEFAULT 0,
  write          INTEGER NOT NULL DEFAULT 1,  -- a read that is unknown leaves nobody in doubt
  operation_id   TEXT,
  journal_id     TEXT,                  -- of the receipt, as is the next
  receipt_seq    INTEGER,
  receipt_kind   TEXT,                  -- null: no receipt yet
  effect         TEXT,
  unsettled      INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX commands_by_run ON commands (run_id);
CREATE INDEX commands_by_operation ON commands (operation_id);
CREATE INDEX commands_to_deliver ON commands (id) WHERE receipt_kind IS NULL AND origin = 'plane';

-- `sent` is counted up before a delivery leaves, `declined` when it is answered with overloaded, draining or no_room.
-- Where the two are equal, the journal has certainly not executed the command: it is struck off.
CREATE TABLE deliveries (
  command_id TEXT NOT NULL,
  journal_id TEXT NOT NULL,
  sent       INTEGER NOT NULL,
  declined   INTEGER NOT NULL,
  PRIMARY KEY (command_id, journal_id)
) STRICT, WITHOUT ROWID;
