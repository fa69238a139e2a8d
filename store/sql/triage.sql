-- What the supervisor asks: which runs have unsettled operations, what stands around them, and what it has tried.

-- name: unsettled_runs
WITH RECURSIVE found (run) AS (
  SELECT min(run) FROM operations INDEXED BY operations_unsettled_of_run WHERE listed = 1 AND run > ?
  UNION ALL
  SELECT (
    SELECT min(o.run) FROM operations AS o INDEXED BY operations_unsettled_of_run WHERE o.listed = 1 AND o.run > f.run
  )
  FROM found AS f WHERE f.run IS NOT NULL LIMIT ?
)
SELECT r.id, r.run_id, r.ended, r.outcome, r.operations, r.unsettled, r.first_at, r.last_at
FROM found AS f CROSS JOIN runs AS r ON r.id = f.run;

-- name: unsettled_of_run
SELECT
  id, command, run, receipt_seq, listed, operation_id, command_id, run_id, origin, tool, args_digest, write,
  identical, repeat, state, effect, effect_by, guards, reason, error_means, receipt, attempt_count, metadata,
  accepted_seq, started_seq, result_seq, accepted_at, started_at, ended_at, deadline_at, expires_at,
  parent_operation_id
FROM operation_rows
WHERE run = (SELECT id FROM runs WHERE run_id = ?) AND listed = 1 ORDER BY id LIMIT ?;

-- name: settled_of_run
SELECT
  id, command, run, receipt_seq, listed, operation_id, command_id, run_id, origin, tool, args_digest, write,
  identical, repeat, state, effect, effect_by, guards, reason, error_means, receipt, attempt_count, metadata,
  accepted_seq, started_seq, result_seq, accepted_at, started_at, ended_at, deadline_at, expires_at,
  parent_operation_id
FROM operation_rows
WHERE run = (SELECT id FROM runs WHERE run_id = :run_id) AND listed = 0 AND ended_at IS NOT NULL AND id >= coalesce(
  (
    SELECT o.id FROM operations AS o
    WHERE o.run = (SELECT id FROM runs WHERE run_id = :run_id) ORDER BY o.id DESC LIMIT 1 OFFSET :window
  ), 0
)
ORDER BY id DESC LIMIT :limit;

-- name: open_in_run
SELECT 1 FROM operations INDEXED BY operations_open
WHERE ended_at IS NULL AND accepted_seq > 0 AND run = (SELECT id FROM runs WHERE run_id = ?) LIMIT 1;

-- name: triage
SELECT t.attempts, t.not_before FROM runs AS r CROSS JOIN triages AS t ON t.run = r.id WHERE r.run_id = ?;

-- name: set_triage
INSERT INTO triages (run, attempts, not_before, digest)
SELECT id, ?, ?, ? FROM runs WHERE run_id = ?
ON CONFLICT (run) DO UPDATE
SET attempts = excluded.attempts, not_before = excluded.not_before, digest = excluded.digest;

-- name: end_triage
DELETE FROM triages WHERE run = (SELECT id FROM runs WHERE run_id = ?);

-- name: insert_observation
INSERT INTO observations (operation, attempt, side, at, body, digest) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (operation, attempt, side) DO NOTHING;

-- name: observations
SELECT s.attempt, s.side, s.at, s.body
FROM operations AS o CROSS JOIN observations AS s ON s.operation = o.id
WHERE o.operation_id = ? ORDER BY s.attempt DESC, s.side DESC LIMIT ?;

-- name: verify_triages
SELECT t.run, r.run_id, t.attempts, t.not_before, t.digest
FROM triages AS t LEFT JOIN runs AS r ON r.id = t.run WHERE t.run > ? ORDER BY t.run LIMIT ?;

-- name: verify_observations
SELECT id, operation, attempt, side, at, body, digest FROM observations WHERE id > ? ORDER BY id LIMIT ?;
