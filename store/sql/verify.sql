-- What `store.verify` reads: whole tables in pages by rowid; and what a rebuild writes (`store.mending`). Nothing here
-- is asked by a running daemon's own work.

-- name: verify_events
SELECT
  e.seq, e.kind, e.at, r.run_id, c.command_id, o.operation_id, e.terminal, e.digest, e.chain, e.body, c.receipt_seq,
  p.seq, g.first, g.chain, m.body, m.digest, x.done
FROM
  events AS e
  LEFT JOIN runs AS r ON r.id = e.run
  LEFT JOIN commands AS c ON c.id = e.command
  LEFT JOIN operations AS o ON o.id = e.operation
  LEFT JOIN payloads AS p ON p.seq = e.seq
  LEFT JOIN gaps AS g ON g.last = e.seq - 1
  LEFT JOIN remains AS m ON m.seq = e.seq
  LEFT JOIN erasures AS x ON x.command = e.command
WHERE e.seq > ? ORDER BY e.seq LIMIT ?;

-- name: verify_payloads
SELECT
  p.seq, p.digest, p.redact, p.due, p.body, p.pieces, e.kind, coalesce(e.body, m.body), x.done, c.receipt_seq,
  o.write, o.state, o.effect, o.effect_by, o.error_means
FROM
  payloads AS p
  LEFT JOIN events AS e ON e.seq = p.seq
  LEFT JOIN remains AS m ON m.seq = p.seq
  LEFT JOIN commands AS c ON c.id = e.command
  LEFT JOIN erasures AS x ON x.command = e.command
  LEFT JOIN operations AS o ON o.id = e.operation
WHERE p.seq > ? ORDER BY p.seq LIMIT ?;

-- name: verify_commands
SELECT
  c.id, c.command_id, r.run_id, c.kind, c.origin, c.content_digest, c.operation_id, c.accepted_seq, c.accepted_at,
  c.receipt_seq, c.receipt_kind, c.expires_at, e.kind, e.terminal, e.command, coalesce(c.accepted_seq, c.receipt_seq),
  coalesce(a.body, m.body)
FROM
  commands AS c
  LEFT JOIN runs AS r ON r.id = c.run
  LEFT JOIN events AS e ON e.seq = c.receipt_seq
  LEFT JOIN events AS a ON a.seq = coalesce(c.accepted_seq, c.receipt_seq)
  LEFT JOIN remains AS m ON m.seq = a.seq
WHERE c.id > ? ORDER BY c.id LIMIT ?;

-- name: verify_operations
SELECT
  o.id, o.command, o.run, o.receipt_seq, o.listed, o.operation_id, o.command_id, o.run_id, o.origin, o.tool,
  o.args_digest, o.write, o.identical, o.repeat, o.state, o.effect, o.effect_by, o.guards, o.reason, o.error_means,
  o.receipt, o.attempt_count, o.metadata, o.accepted_seq, o.started_seq, o.result_seq, o.accepted_at, o.started_at,
  o.ended_at, o.deadline_at, o.expires_at, o.parent_operation_id, a.kind, coalesce(a.body, m.body)
FROM
  operation_rows AS o
  LEFT JOIN events AS a ON a.seq = o.accepted_seq
  LEFT JOIN remains AS m ON m.seq = o.accepted_seq
WHERE o.id > ? ORDER BY o.id LIMIT ?;

-- name: verify_effects
SELECT id, operation_id, effect, effect_by, attempt_count FROM operations WHERE id > ? ORDER BY id LIMIT ?;

-- name: verify_intents
SELECT id, operation_id, write, accepted_seq, started_seq, attempt_count FROM operations WHERE id > ? ORDER BY id LIMIT ?;

-- name: attempts_to_verify
SELECT a.attempt, a.started_seq, a.idempotency_key, a.key_carrier, a.idempotent, e.kind, e.operation
FROM attempts AS a LEFT JOIN events AS e ON e.seq = a.started_seq WHERE a.operation = ? ORDER BY a.attempt;

-- name: verify_runs
SELECT
  r.id, r.run_id, r.operations, r.unsettled, count(o.id), coalesce(sum(o.listed), 0)
FROM (SELECT id, run_id, operations, unsettled FROM runs WHERE id > ? ORDER BY id LIMIT ?) AS r
  LEFT JOIN operations AS o ON o.run = r.id
GROUP BY r.id ORDER BY r.id;

-- name: verify_deliveries
SELECT id, command, at, answer, digest FROM deliveries WHERE id > ? ORDER BY id LIMIT ?;

-- name: verify_dead_letters
SELECT d.seq, d.code, d.message, d.at, d.requeued_as, d.digest, e.body, m.body
FROM
  dead_letters AS d
  LEFT JOIN events AS e ON e.seq = d.requeued_as
  LEFT JOIN remains AS m ON m.seq = d.requeued_as
WHERE d.seq > ? ORDER BY d.seq LIMIT ?;

-- name: verify_gaps
SELECT
  g.first, g.last, g.chain, EXISTS (SELECT 1 FROM events AS e WHERE e.seq BETWEEN g.first AND g.last),
  EXISTS (SELECT 1 FROM events AS e WHERE e.seq = g.last + 1), g.digest
FROM gaps AS g WHERE g.first > ? ORDER BY g.first LIMIT ?;

-- name: verify_tombstones
SELECT
  t.id, t.command_id, t.run, t.kind, t.seq, t.content_digest, t.operation_id, t.args_digest, t.write, t.state, t.effect,
  t.effect_by, t.pruned_at, c.id, 
  (SELECT g.last FROM gaps AS g WHERE g.first <= t.seq ORDER BY g.first DESC LIMIT 1) >= t.seq, t.digest
FROM tombstones AS t LEFT JOIN commands AS c ON c.command_id = t.command_id
WHERE t.id > ? ORDER BY t.id LIMIT ?;

-- name: verify_traces
SELECT t.run, t.run_id, t.ended, t.outcome, t.first_at, t.last_at, t.resumes, r.run_id, t.digest
FROM traces AS t LEFT JOIN runs AS r ON r.id = t.run WHERE t.run > ? ORDER BY t.run LIMIT ?;

-- name: verify_erasures
SELECT x.command, x.done, e.body IS NULL
FROM
  erasures AS x
  LEFT JOIN commands AS c ON c.id = x.command
  LEFT JOIN events AS e ON e.seq = c.accepted_seq
WHERE x.command > ? ORDER BY x.command LIMIT ?;

-- name: verify_remains
SELECT m.seq, m.digest, e.seq, e.body IS NULL
FROM remains AS m LEFT JOIN events AS e ON e.seq = m.seq WHERE m.seq > ? ORDER BY m.seq LIMIT ?;

-- name: verify_pieces
SELECT
  i.id, i.of, i.n, coalesce((SELECT max(b.n) FROM pieces AS b WHERE b.of = i.of AND b.n < i.n), 0),
  EXISTS (SELECT 1 FROM payloads AS p WHERE p.pieces = i.of), EXISTS (SELECT 1 FROM shreds AS s WHERE s.of = i.of)
FROM pieces AS i WHERE i.id > ? ORDER BY i.id LIMIT ?;

-- name: verify_shreds
SELECT s.of, EXISTS (SELECT 1 FROM pieces AS i WHERE i.of = s.of) FROM shreds AS s WHERE s.of > ? ORDER BY s.of LIMIT ?;

-- name: verify_walks
SELECT w.command, c.command_id, c.receipt_seq, w.after, w.erased, w.unsettled, w.unacknowledged, w.kept, w.digest
FROM walks AS w LEFT JOIN commands AS c ON c.id = w.command WHERE w.command > ? ORDER BY w.command LIMIT ?;

-- name: events_to_project
SELECT e.seq, e.kind, e.run, e.command, e.operation, coalesce(e.body, m.body)
FROM events AS e LEFT JOIN remains AS m ON m.seq = e.seq
WHERE e.seq > ? ORDER BY e.seq LIMIT ?;

-- name: acceptance_of
SELECT accepted_seq FROM commands WHERE id = ?;

-- name: all_runs
SELECT * FROM runs WHERE id > ? ORDER BY id LIMIT ?;

-- name: all_run_links
SELECT * FROM run_links WHERE (run, resumes) > (?, ?) ORDER BY run, resumes LIMIT ?;

-- name: all_commands
SELECT * FROM commands WHERE id > ? ORDER BY id LIMIT ?;

-- name: all_operations
SELECT * FROM operations WHERE id > ? ORDER BY id LIMIT ?;

-- name: all_attempts
SELECT * FROM attempts WHERE (operation, attempt) > (?, ?) ORDER BY operation, attempt LIMIT ?;

-- name: all_evidence
SELECT * FROM evidence WHERE (operation, seq, attempt) > (?, ?, ?) ORDER BY operation, seq, attempt LIMIT ?;

-- name: forget_runs
DELETE FROM runs;

-- name: restore_runs
INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?);

-- name: forget_run_links
DELETE FROM run_links;

-- name: restore_run_links
INSERT INTO run_links VALUES (?, ?);

-- name: forget_commands
DELETE FROM commands;

-- name: restore_commands
INSERT INTO commands VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: forget_operations
DELETE FROM operations;

-- name: restore_operations
INSERT INTO operations VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: forget_attempts
DELETE FROM attempts;

-- name: restore_attempts
INSERT INTO attempts VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: forget_evidence
DELETE FROM evidence;

-- name: restore_evidence
INSERT INTO evidence VALUES (?, ?, ?, ?, ?, ?, ?);
