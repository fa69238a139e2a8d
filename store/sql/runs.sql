-- Runs, and which runs they resume.

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

-- name: continuing
WITH RECURSIVE continuing (run) AS (
  SELECT l.run FROM runs AS r CROSS JOIN run_links AS l ON l.resumes = r.id WHERE r.run_id = ?
  UNION
  SELECT l.run FROM continuing AS s CROSS JOIN run_links AS l ON l.resumes = s.run
  LIMIT ?
)
SELECT r.run_id FROM continuing AS s CROSS JOIN runs AS r ON r.id = s.run;
