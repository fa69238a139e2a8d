-- What `store.verify` reads: whole tables in pages by rowid. Nothing here is asked by a running daemon's own work.

-- name: verify_events
SELECT
  v.seq, v.kind, v.at, v.run_id, v.command_id, v.operation_id, v.terminal, v.digest, v.chain, v.body, c.receipt_seq
FROM events AS e CROSS JOIN event_rows AS v ON v.seq = e.seq LEFT JOIN commands AS c ON c.id = e.command
WHERE e.seq > ? ORDER BY e.seq LIMIT ?;

-- name: verify_payloads
SELECT p.seq, p.digest, p.body, e.body
FROM payloads AS p LEFT JOIN events AS e ON e.seq = p.seq
WHERE p.seq > ? ORDER BY p.seq LIMIT ?;

-- name: verify_commands
SELECT c.id, c.command_id, c.receipt_seq, c.receipt_kind, e.kind, e.terminal, e.command
FROM commands AS c LEFT JOIN events AS e ON e.seq = c.receipt_seq
WHERE c.id > ? ORDER BY c.id LIMIT ?;

-- name: verify_operations
SELECT
  id, command, run, receipt_seq, listed, operation_id, command_id, run_id, origin, tool, args_digest, write,
  identical, repeat, state, effect, effect_by, guards, reason, error_means, receipt, attempt_count, metadata,
  accepted_seq, started_seq, result_seq, accepted_at, started_at, ended_at, deadline_at, expires_at,
  parent_operation_id
FROM operation_rows WHERE id > ? ORDER BY id LIMIT ?;

-- name: verify_runs
SELECT
  r.id, r.run_id, r.operations, r.unsettled, count(o.id), coalesce(sum(o.listed), 0)
FROM (SELECT id, run_id, operations, unsettled FROM runs WHERE id > ? ORDER BY id LIMIT ?) AS r
  LEFT JOIN operations AS o ON o.run = r.id
GROUP BY r.id ORDER BY r.id;

-- name: verify_deliveries
SELECT id, command, at, answer, digest FROM deliveries WHERE id > ? ORDER BY id LIMIT ?;

-- name: verify_dead_letters
SELECT seq, code, message, at, requeued_as, digest FROM dead_letters WHERE seq > ? ORDER BY seq LIMIT ?;

-- name: all_runs
SELECT * FROM runs ORDER BY id;

-- name: all_run_links
SELECT * FROM run_links ORDER BY run, resumes;

-- name: all_commands
SELECT * FROM commands ORDER BY id;

-- name: all_operations
SELECT * FROM operations ORDER BY id;

-- name: all_attempts
SELECT * FROM attempts ORDER BY operation, attempt;

-- name: all_evidence
SELECT * FROM evidence ORDER BY operation, seq, attempt;
