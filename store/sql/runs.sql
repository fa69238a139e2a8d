-- Runs, which runs they resume, and a listing of what is unsettled in one (see operations.sql for its shape).

-- name: insert_run
INSERT INTO runs (id, run_id, first_at, last_at) VALUES (?, ?, ?, ?);

-- name: last_of_runs
SELECT max(id) FROM runs;

-- name: count_in_run
UPDATE runs SET operations = operations + ?, unsettled = unsettled + ?, last_at = max(last_at, ?) WHERE id = ?;

-- name: run
SELECT
  id, run_id, ended, outcome, operations, unsettled, first_at, last_at,
  EXISTS (SELECT 1 FROM run_links WHERE run = runs.id)
FROM runs WHERE run_id = ?;

-- name: runs_before
SELECT id, run_id, ended, outcome, operations, unsettled, first_at, last_at FROM runs
WHERE id < ? ORDER BY id DESC LIMIT ?;

-- name: runs_alike
SELECT
  r.id, r.run_id, r.ended, r.outcome, r.operations, r.unsettled, r.first_at, r.last_at,
  EXISTS (
    SELECT 1 FROM operations AS o INDEXED BY operations_in_doubt
    WHERE o.run = r.id AND o.guards = 1 AND o.ended_at IS NOT NULL
  ) OR EXISTS (
    SELECT 1 FROM tombstones AS t INDEXED BY tombstones_in_doubt
    WHERE
      t.run = r.id AND t.write = 1 AND t.state IN ('failed', 'unknown')
      AND (t.effect_by = 'supervisor' OR (t.effect_by = 'operator' AND t.effect = 'unknown'))
  )
FROM runs AS r WHERE r.run_id > :after AND r.run_id < :end ORDER BY r.run_id LIMIT :limit;

-- name: end_run
UPDATE runs SET ended = 1, outcome = ? WHERE run_id = ?;

-- name: link_runs
INSERT INTO run_links (run, resumes)
SELECT a.id, b.id FROM runs AS a CROSS JOIN runs AS b ON b.run_id = ? WHERE a.run_id = ?
ON CONFLICT DO NOTHING;

-- name: resumed
WITH RECURSIVE resumed (run) AS (
  SELECT l.resumes FROM runs AS r CROSS JOIN run_links AS l ON l.run = r.id WHERE r.run_id = ?
  UNION
  SELECT l.resumes FROM resumed AS s CROSS JOIN run_links AS l ON l.run = s.run
  LIMIT ?
)
SELECT r.run_id FROM resumed AS s CROSS JOIN runs AS r ON r.id = s.run;

-- name: floor_unsettled_of_run
SELECT id FROM operations
WHERE run = (SELECT r.id FROM runs AS r WHERE r.run_id = :run_id) AND listed = 1 AND id < :before
ORDER BY id DESC LIMIT 1 OFFSET :window;

-- name: page_unsettled_of_run
SELECT
  id, command, run, receipt_seq, listed, operation_id, command_id, run_id, origin, tool, args_digest, write,
  identical, repeat, state, effect, effect_by, guards, reason, error_means, receipt, attempt_count, metadata,
  accepted_seq, started_seq, result_seq, accepted_at, started_at, ended_at, deadline_at, expires_at,
  parent_operation_id
FROM operation_rows
WHERE run = (SELECT r.id FROM runs AS r WHERE r.run_id = :run_id) AND listed = 1 AND id < :before AND id > :floor
  AND (:state IS NULL OR state = :state)
  AND (:effect IS NULL OR effect = :effect)
  AND (:run_id IS NULL OR run_id = :run_id)
  AND (:tool IS NULL OR tool = :tool)
  AND (:unsettled = 0 OR listed = 1)
  AND (:reason IS NULL OR reason = :reason)
  AND (:overdue_at IS NULL OR (state <> 'awaiting_approval' AND coalesce(deadline_at, expires_at) < :overdue_at))
ORDER BY id DESC LIMIT :limit;
