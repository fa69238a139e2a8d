-- Commands, and their deliveries.

-- name: command
SELECT
  id, command_id, run_id, kind, origin, content_digest, operation_id, accepted_seq, accepted_at, receipt_seq,
  receipt_kind, expires_at, run
FROM command_rows WHERE command_id = ?;

-- name: rowid_of_command
SELECT id FROM commands WHERE command_id = ?;

-- name: whereabouts
-- Whether a command is there, or a tombstone of it.
SELECT
  EXISTS (SELECT 1 FROM commands WHERE command_id = :command_id),
  EXISTS (SELECT 1 FROM tombstones WHERE command_id = :command_id);

-- name: insert_command
INSERT INTO commands (
  id, command_id, run, kind, origin, content_digest, operation_id, accepted_seq, accepted_at, receipt_seq,
  receipt_kind, expires_at
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: last_of_commands
SELECT max(id) FROM commands;

-- name: accept_command_again
UPDATE commands SET accepted_seq = ?, accepted_at = ?, receipt_seq = ?, receipt_kind = ? WHERE id = ?;

-- name: commands_to_record_again
-- What is open, what the plane has not acknowledged, what is unsettled, what is a dead letter: each found by an index.
SELECT c.command_id FROM commands AS c
WHERE c.id IN (
  SELECT id FROM commands WHERE receipt_seq IS NULL AND accepted_seq > 0
  UNION ALL SELECT command FROM events WHERE seq > ? AND terminal = 1 AND command IS NOT NULL
  UNION ALL SELECT command FROM operations WHERE listed = 1
  UNION ALL
  SELECT r.id FROM dead_letters AS d CROSS JOIN events AS e ON e.seq = d.seq
    CROSS JOIN commands AS r ON r.id = e.command AND r.receipt_seq = d.seq
)
ORDER BY coalesce(c.accepted_seq, c.receipt_seq);

-- name: set_receipt
UPDATE commands SET receipt_seq = ?, receipt_kind = ? WHERE id = ?;

-- name: open_commands
SELECT
  id, command_id, run_id, kind, origin, content_digest, operation_id, accepted_seq, accepted_at, receipt_seq,
  receipt_kind, expires_at, run
FROM command_rows WHERE receipt_seq IS NULL AND accepted_seq > ? ORDER BY accepted_seq LIMIT ?;

-- name: open_commands_of_run
-- Of all that is open, which is little: an index of its own would be written by each command twice.
SELECT
  id, command_id, run_id, kind, origin, content_digest, operation_id, accepted_seq, accepted_at, receipt_seq,
  receipt_kind, expires_at, run
FROM command_rows
WHERE +run = (SELECT id FROM runs WHERE run_id = ?) AND receipt_seq IS NULL AND accepted_seq > ?
ORDER BY accepted_seq LIMIT ?;

-- name: open_retries
SELECT
  id, command_id, run_id, kind, origin, content_digest, operation_id, accepted_seq, accepted_at, receipt_seq,
  receipt_kind, expires_at, run
FROM command_rows WHERE receipt_seq IS NULL AND accepted_seq > 0 AND kind = 'operation.retry' ORDER BY accepted_seq;

-- name: insert_delivery
INSERT INTO deliveries (command, at, answer, digest) VALUES (?, ?, ?, ?);

-- name: trim_deliveries
DELETE FROM deliveries WHERE id IN (
  SELECT id FROM deliveries WHERE command = ? ORDER BY id DESC LIMIT -1 OFFSET ?
);

-- name: deliveries
SELECT at, answer FROM deliveries WHERE command = (SELECT id FROM commands WHERE command_id = ?) ORDER BY id LIMIT ?;
