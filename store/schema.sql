CREATE TABLE journal (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  file_id TEXT NOT NULL,
  journal_id TEXT NOT NULL,
  created_at TEXT NOT NULL,
  last_seq INTEGER NOT NULL CHECK (last_seq >= 0),
  chain TEXT NOT NULL,
  acked_seq INTEGER NOT NULL CHECK (acked_seq BETWEEN 0 AND last_seq),
  plane_frame_bytes_max INTEGER NOT NULL CHECK (plane_frame_bytes_max > 0),
  fence_reason TEXT,
  fence_detail TEXT,
  fence_at TEXT,
  key_check TEXT, -- which key the keyed digests were made with; NULL while there are none
  counts TEXT NOT NULL,
  digest TEXT NOT NULL,
  CHECK ((fence_reason IS NULL) = (fence_at IS NULL) AND (fence_reason IS NULL) = (fence_detail IS NULL))
) STRICT;

CREATE TABLE runs (
  id INTEGER PRIMARY KEY,
  run_id TEXT NOT NULL UNIQUE,
  ended INTEGER NOT NULL DEFAULT 0 CHECK (ended IN (0, 1)),
  outcome TEXT,
  operations INTEGER NOT NULL DEFAULT 0 CHECK (operations >= 0),
  unsettled INTEGER NOT NULL DEFAULT 0 CHECK (unsettled BETWEEN 0 AND operations),
  first_at TEXT NOT NULL,
  last_at TEXT NOT NULL
) STRICT;

CREATE TABLE run_links (
  run INTEGER NOT NULL REFERENCES runs (id),
  resumes INTEGER NOT NULL REFERENCES runs (id),
  PRIMARY KEY (run, resumes)
) STRICT, WITHOUT ROWID;

CREATE TABLE commands (
  id INTEGER PRIMARY KEY,
  command_id TEXT NOT NULL UNIQUE,
  run INTEGER REFERENCES runs (id), -- NULL where a refused command named none that could be used
  kind TEXT NOT NULL,
  origin TEXT NOT NULL,
  content_digest TEXT NOT NULL,
  operation_id TEXT,
  accepted_seq INTEGER,
  accepted_at TEXT NOT NULL,
  receipt_seq INTEGER,
  receipt_kind TEXT,
  expires_at TEXT,
  CHECK (accepted_seq IS NOT NULL OR receipt_seq IS NOT NULL),
  CHECK (run IS NOT NULL OR accepted_seq IS NULL),
  CHECK ((receipt_seq IS NULL) = (receipt_kind IS NULL))
) STRICT;

CREATE TABLE operations (
  id INTEGER PRIMARY KEY,
  operation_id TEXT NOT NULL UNIQUE,
  command INTEGER NOT NULL REFERENCES commands (id),
  run INTEGER NOT NULL REFERENCES runs (id),
  origin TEXT NOT NULL,
  tool TEXT NOT NULL,
  args_digest TEXT NOT NULL,
  write INTEGER NOT NULL CHECK (write IN (0, 1)),
  identical TEXT NOT NULL,
  repeat INTEGER NOT NULL CHECK (repeat IN (0, 1)),
  state TEXT NOT NULL,
  effect TEXT NOT NULL,
  effect_by TEXT,
  listed INTEGER NOT NULL CHECK (listed IN (0, 1)),
  guards INTEGER NOT NULL CHECK (guards IN (0, 1)),
  reason TEXT,
  error_means TEXT,
  receipt TEXT,
  attempt_count INTEGER NOT NULL CHECK (attempt_count >= 0),
  metadata TEXT,
  accepted_seq INTEGER NOT NULL,
  started_seq INTEGER,
  result_seq INTEGER,
  accepted_at TEXT NOT NULL,
  started_at TEXT,
  ended_at TEXT,
  deadline_at TEXT,
  expires_at TEXT,
  parent_operation_id TEXT
) STRICT;

CREATE TABLE attempts (
  operation INTEGER NOT NULL REFERENCES operations (id),
  attempt INTEGER NOT NULL CHECK (attempt > 0),
  idempotency_key TEXT NOT NULL,
  key_carrier TEXT NOT NULL,
  idempotent INTEGER NOT NULL CHECK (idempotent IN (0, 1)),
  dedupe_horizon_s REAL,
  started_seq INTEGER NOT NULL,
  started_at TEXT NOT NULL,
  deadline_at TEXT NOT NULL,
  phase TEXT,
  outcome TEXT,
  reason TEXT,
  ended_at TEXT,
  duration_ms INTEGER,
  PRIMARY KEY (operation, attempt)
) STRICT, WITHOUT ROWID;

CREATE TABLE evidence (
  operation INTEGER NOT NULL REFERENCES operations (id),
  seq INTEGER NOT NULL,
  attempt INTEGER NOT NULL CHECK (attempt > 0),
  at TEXT NOT NULL,
  effect TEXT NOT NULL,
  source TEXT NOT NULL,
  actor TEXT,
  PRIMARY KEY (operation, seq, attempt)
) STRICT, WITHOUT ROWID;

CREATE TABLE events (
  seq INTEGER PRIMARY KEY,
  kind TEXT NOT NULL,
  at TEXT NOT NULL,
  run INTEGER,
  command INTEGER,
  operation INTEGER,
  terminal INTEGER NOT NULL CHECK (terminal IN (0, 1)),
  digest TEXT NOT NULL,
  chain TEXT NOT NULL,
  body BLOB
) STRICT;

CREATE TABLE payloads (
  seq INTEGER PRIMARY KEY,
  digest TEXT NOT NULL,
  redact TEXT,
  due INTEGER,
  body BLOB, pieces INTEGER,
  CHECK (due IS NULL OR (redact IS NOT NULL AND body IS NOT NULL))
) STRICT;

CREATE TABLE deliveries (
  id INTEGER PRIMARY KEY,
  command INTEGER NOT NULL REFERENCES commands (id),
  at TEXT NOT NULL,
  answer TEXT NOT NULL,
  digest TEXT NOT NULL
) STRICT;

CREATE TABLE dead_letters (
  seq INTEGER PRIMARY KEY REFERENCES events (seq),
  code TEXT NOT NULL,
  message TEXT NOT NULL,
  at TEXT NOT NULL,
  requeued_as INTEGER,
  digest TEXT NOT NULL
) STRICT;

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

CREATE TABLE gaps (
  first INTEGER PRIMARY KEY,
  last INTEGER NOT NULL UNIQUE CHECK (last >= first),
  chain TEXT NOT NULL,
  digest TEXT NOT NULL
) STRICT;

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

CREATE TABLE erasures (
  command INTEGER PRIMARY KEY REFERENCES commands (id),
  done INTEGER NOT NULL CHECK (done IN (0, 1))
) STRICT;

CREATE TABLE remains (
  seq INTEGER PRIMARY KEY,
  body BLOB NOT NULL,
  digest TEXT NOT NULL
) STRICT;

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

CREATE TABLE marks (
  name TEXT PRIMARY KEY,
  detail TEXT NOT NULL,
  at TEXT NOT NULL,
  digest TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE pieces (
  id INTEGER PRIMARY KEY,
  of INTEGER NOT NULL,
  n INTEGER NOT NULL CHECK (n > 0),
  body BLOB NOT NULL,
  UNIQUE (of, n)
) STRICT;

CREATE TABLE shreds (
  of INTEGER PRIMARY KEY,
  secret INTEGER NOT NULL CHECK (secret IN (0, 1))
) STRICT;

CREATE TABLE walks (
  command INTEGER PRIMARY KEY REFERENCES commands (id),
  after INTEGER NOT NULL,
  erased INTEGER NOT NULL,
  unsettled INTEGER NOT NULL,
  unacknowledged INTEGER NOT NULL,
  kept TEXT NOT NULL,
  digest TEXT NOT NULL
) STRICT;

CREATE INDEX commands_open ON commands (accepted_seq) WHERE receipt_seq IS NULL;

CREATE INDEX operations_of_run ON operations (run);

CREATE INDEX operations_open ON operations (accepted_seq) WHERE ended_at IS NULL;

CREATE INDEX operations_unsettled ON operations (listed) WHERE listed = 1;

CREATE INDEX operations_unsettled_since ON operations (listed, ended_at) WHERE listed = 1;

CREATE INDEX operations_with_reason ON operations (reason) WHERE reason IS NOT NULL;

CREATE INDEX operations_not_succeeded ON operations (state) WHERE ended_at IS NOT NULL AND state <> 'succeeded';

CREATE INDEX events_of_operation ON events (operation) WHERE operation IS NOT NULL;

CREATE INDEX payloads_due ON payloads (due) WHERE due IS NOT NULL;

CREATE INDEX deliveries_of_command ON deliveries (command);

CREATE INDEX operations_of_parent ON operations (parent_operation_id, run) WHERE parent_operation_id IS NOT NULL;

CREATE UNIQUE INDEX observations_of_operation ON observations (operation, attempt, side);

CREATE INDEX operations_unsettled_of_run ON operations (run) WHERE listed = 1;

CREATE INDEX erasures_due ON erasures (command) WHERE done = 0;

CREATE INDEX events_alone ON events (run, seq) WHERE command IS NULL AND operation IS NULL;

CREATE INDEX operations_of_command ON operations (command);

CREATE INDEX commands_of_run ON commands (run);

CREATE INDEX run_links_of_resumed ON run_links (resumes);

CREATE INDEX events_of_command ON events (command) WHERE command IS NOT NULL AND operation IS NULL;

CREATE UNIQUE INDEX dead_letters_requeued ON dead_letters (requeued_as) WHERE requeued_as IS NOT NULL;

CREATE INDEX dead_letters_parked ON dead_letters (seq) WHERE requeued_as IS NULL;

CREATE UNIQUE INDEX payloads_in_pieces ON payloads (pieces) WHERE pieces IS NOT NULL;

CREATE INDEX operations_inferred ON operations (effect_by) WHERE effect_by = 'supervisor';

CREATE INDEX tombstones_alike ON tombstones (run, substr(args_digest, 1, 16));

CREATE INDEX operations_alike ON operations (run, args_digest, guards) WHERE write = 1;

CREATE INDEX operations_in_doubt ON operations (run) WHERE guards = 1 AND ended_at IS NOT NULL;

CREATE INDEX tombstones_in_doubt ON tombstones (run)
WHERE write = 1 AND state IN ('failed', 'unknown') AND (effect_by = 'supervisor' OR (effect_by = 'operator' AND effect = 'unknown'));

CREATE VIEW command_rows AS
SELECT
  c.id, c.command_id, r.run_id, c.kind, c.origin, c.content_digest, c.operation_id, c.accepted_seq, c.accepted_at,
  c.receipt_seq, c.receipt_kind, c.expires_at, c.run
FROM commands AS c LEFT JOIN runs AS r ON r.id = c.run;

CREATE VIEW operation_rows AS
SELECT
  o.id, o.command, o.run, c.receipt_seq, o.listed,
  o.operation_id, c.command_id, r.run_id, o.origin, o.tool, o.args_digest, o.write, o.identical, o.repeat,
  o.state, o.effect, o.effect_by, o.guards, o.reason, o.error_means, o.receipt, o.attempt_count, o.metadata,
  o.accepted_seq, o.started_seq, o.result_seq, o.accepted_at, o.started_at, o.ended_at, o.deadline_at,
  o.expires_at, o.parent_operation_id
FROM operations AS o CROSS JOIN commands AS c ON c.id = o.command CROSS JOIN runs AS r ON r.id = o.run;

CREATE VIEW event_rows AS
SELECT e.seq, e.kind, e.at, r.run_id, c.command_id, o.operation_id, e.terminal, e.digest, e.chain, e.body
FROM
  events AS e
  LEFT JOIN runs AS r ON r.id = e.run
  LEFT JOIN commands AS c ON c.id = e.command
  LEFT JOIN operations AS o ON o.id = e.operation;

