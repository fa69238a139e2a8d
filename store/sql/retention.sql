-- What is pruned after its time, and what is left of it: tombstones, gaps in the stream, traces of runs.

-- name: commands_to_prune
SELECT c.id, c.command_id, c.operation_id, c.accepted_at, c.accepted_seq, c.receipt_seq, c.kind
FROM commands AS c WHERE c.id > ? ORDER BY c.id LIMIT ?;

-- name: next_child_run
SELECT run FROM operations WHERE parent_operation_id = ? AND run > ? ORDER BY run LIMIT 1;

-- name: open_errands
SELECT accepted_seq, run FROM commands
WHERE receipt_seq IS NULL AND accepted_seq > 0 AND kind <> 'tool.call' ORDER BY accepted_seq;

-- name: command_to_bury
SELECT command_id, run, receipt_kind, receipt_seq, content_digest, operation_id FROM commands WHERE id = ?;

-- name: events_to_prune
SELECT seq, at, command FROM events WHERE operation = ? AND operation IS NOT NULL ORDER BY seq;

-- name: event_to_prune
SELECT seq, at, command FROM events WHERE seq = ?;

-- name: events_of_command
SELECT seq FROM events WHERE command = ? AND command IS NOT NULL AND operation IS NULL ORDER BY seq;

-- name: events_alone
SELECT seq, at, kind, run FROM events
WHERE command IS NULL AND operation IS NULL AND run IS NULL AND seq > ? ORDER BY seq LIMIT ?;

-- name: events_alone_of_runs
SELECT seq, at, kind, run FROM events
WHERE command IS NULL AND operation IS NULL AND (run, seq) > (?, ?) ORDER BY run, seq LIMIT ?;

-- name: events_alone_of_run
SELECT seq FROM events WHERE command IS NULL AND operation IS NULL AND run = ? AND body IS NOT NULL
ORDER BY seq LIMIT ?;

-- name: is_dead_letter
SELECT 1 FROM dead_letters WHERE seq = ? AND requeued_as IS NULL;

-- name: receipt_of
SELECT receipt_seq FROM commands WHERE id = ?;

-- name: replaced
-- Annotations of an operation that a later one has replaced, and that nobody has to look at any more.
SELECT e.seq FROM events AS e
WHERE
  e.operation = :operation AND e.operation IS NOT NULL AND e.kind = :kind AND e.seq <= :acked
  AND (:before IS NULL OR e.at < :before)
  AND e.seq < (
    SELECT n.seq FROM events AS n
    WHERE
      n.operation = :operation AND n.operation IS NOT NULL AND n.kind = :kind
      AND NOT EXISTS (SELECT 1 FROM dead_letters AS d WHERE d.requeued_as = n.seq)
    ORDER BY n.seq DESC LIMIT 1
  )
  AND NOT EXISTS (SELECT 1 FROM dead_letters AS d WHERE d.seq = e.seq)
  AND NOT EXISTS (SELECT 1 FROM dead_letters AS d WHERE d.requeued_as = e.seq)
ORDER BY e.seq LIMIT :many;

-- name: delete_event
DELETE FROM events WHERE seq = ?;

-- name: delete_payload
DELETE FROM payloads WHERE seq = ?;

-- name: delete_remains
DELETE FROM remains WHERE seq = ?;

-- name: delete_dead_letter
DELETE FROM dead_letters WHERE seq = ?;

-- name: delete_attempts
DELETE FROM attempts WHERE operation = ?;

-- name: delete_evidence
DELETE FROM evidence WHERE operation = ?;

-- name: delete_observations
DELETE FROM observations WHERE operation = ?;

-- name: delete_operation
DELETE FROM operations WHERE id = ?;

-- name: delete_deliveries
DELETE FROM deliveries WHERE command = ?;

-- name: delete_erasure
DELETE FROM erasures WHERE command = ?;

-- name: delete_walk
DELETE FROM walks WHERE command = ?;

-- name: delete_command
DELETE FROM commands WHERE id = ?;

-- name: uncount_in_run
UPDATE runs SET operations = operations - 1 WHERE id = ?;

-- name: insert_tombstone
INSERT INTO tombstones (
  command_id, run, kind, seq, content_digest, operation_id, args_digest, write, state, effect, effect_by, pruned_at,
  digest
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: tombstone
SELECT
  t.command_id, r.run_id, t.kind, t.seq, t.content_digest, t.operation_id, t.effect
FROM tombstones AS t LEFT JOIN runs AS r ON r.id = t.run WHERE t.command_id = ?;

-- name: tombstones_alike
-- The `+` keeps SQLite from putting the value into the expression, which then no index has.
SELECT operation_id, state, effect, effect_by FROM tombstones
WHERE
  run = (SELECT id FROM runs WHERE run_id = :run_id)
  AND substr(args_digest, 1, 16) = substr(:args_digest, 1, 16) AND +args_digest = :args_digest AND write = 1
ORDER BY id DESC LIMIT :limit;

-- name: oldest_tombstones
SELECT id, run, pruned_at FROM tombstones WHERE id > ? ORDER BY id LIMIT ?;

-- name: delete_tombstone
DELETE FROM tombstones WHERE id = ?;

-- name: gap_before
SELECT first, last, chain FROM gaps WHERE last = ?;

-- name: gap_after
SELECT first, last, chain FROM gaps WHERE first = ?;

-- name: insert_gap
INSERT INTO gaps (first, last, chain, digest) VALUES (?, ?, ?, ?);

-- name: delete_gap
DELETE FROM gaps WHERE first = ?;

-- name: run_to_trace
SELECT run_id, ended, outcome, first_at, last_at FROM runs WHERE id = ?;

-- name: resumed_by_rowid
SELECT resumes FROM run_links WHERE run = ? ORDER BY resumes;

-- name: set_trace
INSERT OR REPLACE INTO traces (run, run_id, ended, outcome, first_at, last_at, resumes, digest)
VALUES (?, ?, ?, ?, ?, ?, ?, ?);

-- name: is_run_in_use
SELECT
  EXISTS (SELECT 1 FROM commands WHERE run = :run)
  OR EXISTS (SELECT 1 FROM operations WHERE run = :run)
  OR EXISTS (SELECT 1 FROM tombstones WHERE run = :run)
  OR EXISTS (SELECT 1 FROM run_links WHERE resumes = :run)
  OR EXISTS (SELECT 1 FROM events WHERE command IS NULL AND operation IS NULL AND run = :run);

-- name: delete_trace
DELETE FROM traces WHERE run = ?;

-- name: delete_triage
DELETE FROM triages WHERE run = ?;

-- name: delete_run_links
DELETE FROM run_links WHERE run = ?;

-- name: delete_run
DELETE FROM runs WHERE id = ?;

-- name: all_traces
SELECT run, run_id, ended, outcome, first_at, last_at, resumes FROM traces ORDER BY run;

-- name: seed_run
INSERT INTO runs (id, run_id, ended, outcome, first_at, last_at) VALUES (?, ?, ?, ?, ?, ?);

-- name: seed_run_link
INSERT INTO run_links (run, resumes) VALUES (?, ?);

-- name: event_place
SELECT run, command, operation FROM events WHERE seq = ?;
