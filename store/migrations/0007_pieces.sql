-- What is long is kept in pieces, so that it can be removed in pieces: each step of retention and erasure stays short.
BEGIN IMMEDIATE;

-- `body` is then the first piece, and `pieces` names the others (`pieces.of`): the seq that the payload was recorded with.
ALTER TABLE payloads ADD COLUMN pieces INTEGER;

CREATE UNIQUE INDEX payloads_in_pieces ON payloads (pieces) WHERE pieces IS NOT NULL;

-- `n` counts from 1. No digest: that of the payload covers them.
CREATE TABLE pieces (
  id INTEGER PRIMARY KEY,
  of INTEGER NOT NULL,
  n INTEGER NOT NULL CHECK (n > 0),
  body BLOB NOT NULL,
  UNIQUE (of, n)
) STRICT;

-- Pieces that no payload names any more: they go with the next commits, the last one first. `secret`: no copy of them may
-- stay in the `-wal` either.
CREATE TABLE shreds (
  of INTEGER PRIMARY KEY,
  secret INTEGER NOT NULL CHECK (secret IN (0, 1))
) STRICT;

-- How far a `run.erase` has come, until it has its receipt: the commands up to `after` are dealt with. `kept` are the
-- first of the operations that it kept, as a JSON list.
CREATE TABLE walks (
  command INTEGER PRIMARY KEY REFERENCES commands (id),
  after INTEGER NOT NULL,
  erased INTEGER NOT NULL,
  unsettled INTEGER NOT NULL,
  unacknowledged INTEGER NOT NULL,
  kept TEXT NOT NULL,
  digest TEXT NOT NULL
) STRICT;

-- What a supervisor has closed, and a probe may still find out: a start looks through it.
CREATE INDEX operations_inferred ON operations (effect_by) WHERE effect_by = 'supervisor';

PRAGMA user_version = 7;
COMMIT;
