-- Operations, their attempts and their evidence.
--
-- The listings (`page_…`) share one shape: newest first, rows below the cursor, at most `:window` rows looked at.
-- `floor_…` says where that window ends. What no index leads to is a filter on the rows of the window, so that a page
-- costs the same however rare its matches are. A `+` keeps a column from leading the planner to another index.

-- name: operation
SELECT
  id, command, run, receipt_seq, listed, operation_id, command_id, run_id, origin, tool, args_digest, write,
  identical, repeat, state, effect, effect_by, guards, reason, error_means, receipt, attempt_count, metadata,
  accepted_seq, started_seq, result_seq, accepted_at, started_at, ended_at, deadline_at, expires_at,
  parent_operation_id
FROM operation_rows WHERE operation_id = ?;

-- name: last_of_operations
SELECT max(id) FROM operations;

-- name: has_alike
SELECT
  EXISTS (SELECT 1 FROM operations WHERE run = :run AND args_digest = :args_digest AND write = 1)
  OR EXISTS (
    SELECT 1 FROM tombstones
    WHERE run = :run AND substr(args_digest, 1, 16) = substr(:args_digest, 1, 16) AND +args_digest = :args_digest
  );

-- name: insert_operation
INSERT INTO operations (
  state, effect, effect_by, listed, guards, reason, error_means, receipt, attempt_count, metadata, started_seq,
  result_seq, started_at, ended_at, deadline_at, id, operation_id, command, run, origin, tool, args_digest, write,
  identical, repeat, accepted_seq, accepted_at, expires_at, parent_operation_id
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: update_operation
UPDATE operations SET
  state = ?, effect = ?, effect_by = ?, listed = ?, guards = ?, reason = ?, error_means = ?, receipt = ?,
  attempt_count = ?, metadata = ?, started_seq = ?, result_seq = ?, started_at = ?, ended_at = ?, deadline_at = ?
WHERE id = ?;

-- name: accept_operation_again
UPDATE operations SET
  accepted_seq = ?, accepted_at = ?, result_seq = CASE WHEN result_seq IS ? THEN NULL ELSE result_seq END
WHERE id = ?;

-- name: reopen_operation
UPDATE operations SET
  state = 'accepted', effect = 'unknown', effect_by = NULL, listed = 0, guards = write, reason = NULL,
  error_means = NULL, accepted_seq = ?, accepted_at = ?, ended_at = NULL, deadline_at = NULL
WHERE id = ?;

-- name: restate_operation
UPDATE operations SET result_seq = coalesce(result_seq, ?) WHERE id = ?;

-- name: forget_absence
DELETE FROM evidence WHERE operation = ? AND effect = 'none';

-- name: insert_attempt
INSERT INTO attempts (
  operation, attempt, idempotency_key, key_carrier, idempotent, dedupe_horizon_s, started_seq, started_at, deadline_at
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: end_attempt
UPDATE attempts SET phase = ?, outcome = ?, reason = ?, ended_at = ?, duration_ms = ?
WHERE operation = ? AND attempt = ? AND ended_at IS NULL;

-- name: attempts
SELECT
  a.attempt, a.idempotency_key, a.key_carrier, a.idempotent, a.dedupe_horizon_s, a.started_seq, a.started_at,
  a.deadline_at, a.phase, a.outcome, a.reason, a.ended_at, a.duration_ms
FROM operations AS o CROSS JOIN attempts AS a ON a.operation = o.id
WHERE o.operation_id = ? ORDER BY a.attempt LIMIT ?;

-- name: attempts_over
-- Those that have ended, and may have done something.
SELECT attempt, started_seq FROM attempts
WHERE operation = ? AND ended_at IS NOT NULL AND outcome IS NOT 'not_executed' ORDER BY attempt;

-- name: attempt_started_at_seq
SELECT attempt FROM attempts WHERE operation = ? AND started_seq = ?;

-- name: attempts_begun_by
SELECT count(*) FROM attempts WHERE operation = ? AND started_seq <= ?;

-- name: insert_evidence
INSERT INTO evidence (operation, seq, attempt, at, effect, source, actor)
VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: evidence
-- Of what child runs proved (`store.delegation`) only the newest word counts.
SELECT e.attempt, e.seq, e.at, e.effect, e.source, e.actor
FROM operations AS o CROSS JOIN evidence AS e ON e.operation = o.id
WHERE
  o.operation_id = ?
  AND (
    e.actor IS NOT e.source || ':delegation'
    OR NOT EXISTS (
      SELECT 1 FROM evidence AS n
      WHERE n.operation = e.operation AND n.seq > e.seq AND n.actor = n.source || ':delegation'
    )
  )
ORDER BY e.seq, e.attempt LIMIT ?;

-- name: evidence_to_judge
-- What was said before event `:before`, likewise. What was said of an operation before its first attempt began is
-- about another one, or about none.
SELECT e.seq, e.attempt, e.effect, e.source, e.actor IS e.source || ':delegation'
FROM evidence AS e LEFT JOIN attempts AS a ON a.operation = e.operation AND a.attempt = e.attempt
WHERE
  e.operation = :operation AND e.seq < :before AND (a.started_seq IS NULL OR a.started_seq < e.seq)
  AND (
    e.actor IS NOT e.source || ':delegation'
    OR NOT EXISTS (
      SELECT 1 FROM evidence AS n
      WHERE n.operation = e.operation AND n.seq > e.seq AND n.seq < :before
        AND n.actor = n.source || ':delegation'
    )
  )
ORDER BY e.seq, e.attempt;

-- name: child_runs
SELECT o.run, r.run_id, r.ended, min(o.id), min(o.accepted_seq)
FROM operations AS o CROSS JOIN runs AS r ON r.id = o.run
WHERE o.parent_operation_id = :parent AND o.operation_id <> :parent GROUP BY o.run LIMIT :limit;

-- name: children
SELECT
  count(*),
  coalesce(sum(o.ended_at IS NULL OR o.listed = 1 OR o.effect_by IS 'supervisor'), 0),
  coalesce(sum(o.effect <> 'none' OR o.effect_by IS 'supervisor'), 0),
  coalesce(max(o.effect_by IS 'operator'), 0),
  coalesce(max(o.effect_by IS 'probe'), 0)
FROM operations AS o
WHERE
  o.run = :run AND o.operation_id <> :parent
  AND (o.parent_operation_id = :parent OR (o.parent_operation_id IS NULL AND :whole_run = 1));

-- name: served_by
-- The operations of other runs that an operation serves: its own parent; where it names none, those of its run.
SELECT p.operation_id
FROM operations AS o CROSS JOIN operations AS p ON p.operation_id = o.parent_operation_id
WHERE o.operation_id = :operation
UNION ALL
SELECT p.operation_id
FROM operations AS o CROSS JOIN operations AS s ON s.run = o.run
CROSS JOIN operations AS p ON p.operation_id = s.parent_operation_id
WHERE
  o.operation_id = :operation AND o.parent_operation_id IS NULL AND s.parent_operation_id IS NOT NULL
  AND p.run <> o.run;

-- name: relied_on
-- Whether an attempt of `:operation` that began after event `:child` had only a word about its child runs to rely on
-- that the ones before it did nothing.
SELECT EXISTS (
  SELECT 1 FROM attempts AS a CROSS JOIN evidence AS e ON e.operation = a.operation
  WHERE
    a.operation = :operation AND a.started_seq > :child AND a.outcome IS NOT 'not_executed'
    AND e.seq < a.started_seq AND e.effect = 'none' AND e.actor = e.source || ':delegation'
    AND NOT EXISTS (
      SELECT 1 FROM evidence AS n
      WHERE n.operation = e.operation AND n.seq > e.seq AND n.seq < a.started_seq
        AND n.actor = n.source || ':delegation'
    )
);

-- name: parents_of_ended_run
SELECT o.parent_operation_id
FROM runs AS r CROSS JOIN operations AS o ON o.run = r.id
WHERE r.id = ? AND r.ended = 1 AND o.parent_operation_id IS NOT NULL;

-- name: twins_guarding
SELECT
  id, command, run, receipt_seq, listed, operation_id, command_id, run_id, origin, tool, args_digest, write,
  identical, repeat, state, effect, effect_by, guards, reason, error_means, receipt, attempt_count, metadata,
  accepted_seq, started_seq, result_seq, accepted_at, started_at, ended_at, deadline_at, expires_at,
  parent_operation_id
FROM operation_rows
WHERE run = (SELECT id FROM runs WHERE run_id = :run_id) AND args_digest = :args_digest AND write = 1 AND guards = 1
ORDER BY id DESC LIMIT :limit;

-- name: twins_alike
SELECT
  id, command, run, receipt_seq, listed, operation_id, command_id, run_id, origin, tool, args_digest, write,
  identical, repeat, state, effect, effect_by, guards, reason, error_means, receipt, attempt_count, metadata,
  accepted_seq, started_seq, result_seq, accepted_at, started_at, ended_at, deadline_at, expires_at,
  parent_operation_id
FROM operation_rows
WHERE run = (SELECT id FROM runs WHERE run_id = :run_id) AND args_digest = :args_digest AND write = 1 AND guards = 0
ORDER BY id DESC LIMIT :limit;

-- name: open_operations
SELECT
  id, command, run, receipt_seq, listed, operation_id, command_id, run_id, origin, tool, args_digest, write,
  identical, repeat, state, effect, effect_by, guards, reason, error_means, receipt, attempt_count, metadata,
  accepted_seq, started_seq, result_seq, accepted_at, started_at, ended_at, deadline_at, expires_at,
  parent_operation_id
FROM operation_rows
WHERE ended_at IS NULL AND accepted_seq > ? ORDER BY accepted_seq LIMIT ?;

-- name: answers_of_run
SELECT
  o.id, c.command_id,
  o.write = 1 AND o.origin = :origin AND (
    o.state = 'succeeded' OR (o.state = 'failed' AND o.effect <> 'none') OR (o.state = 'unknown' AND o.effect = 'occurred')
  ) AND :word IS NOT (
    SELECT d.answer FROM deliveries AS d
    WHERE d.command = o.command AND d.answer IN (:word, :but) ORDER BY d.id DESC LIMIT 1
  )
FROM operations AS o CROSS JOIN commands AS c ON c.id = o.command
WHERE o.run = (SELECT r.id FROM runs AS r WHERE r.run_id = :run_id) AND o.id > :after ORDER BY o.id LIMIT :limit;

-- name: operations_after
SELECT
  id, command, run, receipt_seq, listed, operation_id, command_id, run_id, origin, tool, args_digest, write,
  identical, repeat, state, effect, effect_by, guards, reason, error_means, receipt, attempt_count, metadata,
  accepted_seq, started_seq, result_seq, accepted_at, started_at, ended_at, deadline_at, expires_at,
  parent_operation_id
FROM operation_rows WHERE id > ? ORDER BY id LIMIT ?;

-- name: unsettled
SELECT count(*), min(ended_at) FROM operations INDEXED BY operations_unsettled_since WHERE listed = 1;

-- name: floor_all
SELECT id FROM operations WHERE TRUE AND id < :before ORDER BY id DESC LIMIT 1 OFFSET :window;

-- name: page_all
SELECT
  id, command, run, receipt_seq, listed, operation_id, command_id, run_id, origin, tool, args_digest, write,
  identical, repeat, state, effect, effect_by, guards, reason, error_means, receipt, attempt_count, metadata,
  accepted_seq, started_seq, result_seq, accepted_at, started_at, ended_at, deadline_at, expires_at,
  parent_operation_id
FROM operation_rows
WHERE TRUE AND id < :before AND id > :floor
  AND (:state IS NULL OR state = :state)
  AND (:effect IS NULL OR effect = :effect)
  AND (:run_id IS NULL OR run_id = :run_id)
  AND (:tool IS NULL OR tool = :tool)
  AND (:unsettled = 0 OR listed = 1)
  AND (:reason IS NULL OR reason = :reason)
  AND (:overdue_at IS NULL OR (state <> 'awaiting_approval' AND coalesce(deadline_at, expires_at) < :overdue_at))
ORDER BY id DESC LIMIT :limit;

-- name: floor_of_run
SELECT id FROM operations WHERE run = (SELECT r.id FROM runs AS r WHERE r.run_id = :run_id) AND id < :before ORDER BY id DESC LIMIT 1 OFFSET :window;

-- name: page_of_run
SELECT
  id, command, run, receipt_seq, listed, operation_id, command_id, run_id, origin, tool, args_digest, write,
  identical, repeat, state, effect, effect_by, guards, reason, error_means, receipt, attempt_count, metadata,
  accepted_seq, started_seq, result_seq, accepted_at, started_at, ended_at, deadline_at, expires_at,
  parent_operation_id
FROM operation_rows
WHERE run = (SELECT r.id FROM runs AS r WHERE r.run_id = :run_id) AND id < :before AND id > :floor
  AND (:state IS NULL OR state = :state)
  AND (:effect IS NULL OR effect = :effect)
  AND (:run_id IS NULL OR run_id = :run_id)
  AND (:tool IS NULL OR tool = :tool)
  AND (:unsettled = 0 OR listed = 1)
  AND (:reason IS NULL OR reason = :reason)
  AND (:overdue_at IS NULL OR (state <> 'awaiting_approval' AND coalesce(deadline_at, expires_at) < :overdue_at))
ORDER BY id DESC LIMIT :limit;

-- name: floor_unsettled
SELECT id FROM operations WHERE listed = 1 AND id < :before ORDER BY id DESC LIMIT 1 OFFSET :window;

-- name: page_unsettled
SELECT
  id, command, run, receipt_seq, listed, operation_id, command_id, run_id, origin, tool, args_digest, write,
  identical, repeat, state, effect, effect_by, guards, reason, error_means, receipt, attempt_count, metadata,
  accepted_seq, started_seq, result_seq, accepted_at, started_at, ended_at, deadline_at, expires_at,
  parent_operation_id
FROM operation_rows
WHERE listed = 1 AND id < :before AND id > :floor
  AND (:state IS NULL OR state = :state)
  AND (:effect IS NULL OR effect = :effect)
  AND (:run_id IS NULL OR run_id = :run_id)
  AND (:tool IS NULL OR tool = :tool)
  AND (:unsettled = 0 OR listed = 1)
  AND (:reason IS NULL OR reason = :reason)
  AND (:overdue_at IS NULL OR (state <> 'awaiting_approval' AND coalesce(deadline_at, expires_at) < :overdue_at))
ORDER BY id DESC LIMIT :limit;

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

-- name: floor_with_reason
SELECT id FROM operations WHERE reason = :reason AND reason IS NOT NULL AND id < :before ORDER BY id DESC LIMIT 1 OFFSET :window;

-- name: page_with_reason
SELECT
  id, command, run, receipt_seq, listed, operation_id, command_id, run_id, origin, tool, args_digest, write,
  identical, repeat, state, effect, effect_by, guards, reason, error_means, receipt, attempt_count, metadata,
  accepted_seq, started_seq, result_seq, accepted_at, started_at, ended_at, deadline_at, expires_at,
  parent_operation_id
FROM operation_rows
WHERE reason = :reason AND reason IS NOT NULL AND id < :before AND id > :floor
  AND (:state IS NULL OR state = :state)
  AND (:effect IS NULL OR effect = :effect)
  AND (:run_id IS NULL OR run_id = :run_id)
  AND (:tool IS NULL OR tool = :tool)
  AND (:unsettled = 0 OR listed = 1)
  AND (:reason IS NULL OR reason = :reason)
  AND (:overdue_at IS NULL OR (state <> 'awaiting_approval' AND coalesce(deadline_at, expires_at) < :overdue_at))
ORDER BY id DESC LIMIT :limit;

-- name: floor_inferred
SELECT id FROM operations WHERE effect_by = 'supervisor' AND id < :before ORDER BY id DESC LIMIT 1 OFFSET :window;

-- name: page_inferred
SELECT
  id, command, run, receipt_seq, listed, operation_id, command_id, run_id, origin, tool, args_digest, write,
  identical, repeat, state, effect, effect_by, guards, reason, error_means, receipt, attempt_count, metadata,
  accepted_seq, started_seq, result_seq, accepted_at, started_at, ended_at, deadline_at, expires_at,
  parent_operation_id
FROM operation_rows
WHERE effect_by = 'supervisor' AND id < :before AND id > :floor
  AND (:state IS NULL OR state = :state)
  AND (:effect IS NULL OR effect = :effect)
  AND (:run_id IS NULL OR run_id = :run_id)
  AND (:tool IS NULL OR tool = :tool)
  AND (:unsettled = 0 OR listed = 1)
  AND (:reason IS NULL OR reason = :reason)
  AND (:overdue_at IS NULL OR (state <> 'awaiting_approval' AND coalesce(deadline_at, expires_at) < :overdue_at))
ORDER BY id DESC LIMIT :limit;

-- name: floor_not_succeeded
SELECT id FROM operations WHERE state = :state AND ended_at IS NOT NULL AND state <> 'succeeded' AND id < :before ORDER BY id DESC LIMIT 1 OFFSET :window;

-- name: page_not_succeeded
SELECT
  id, command, run, receipt_seq, listed, operation_id, command_id, run_id, origin, tool, args_digest, write,
  identical, repeat, state, effect, effect_by, guards, reason, error_means, receipt, attempt_count, metadata,
  accepted_seq, started_seq, result_seq, accepted_at, started_at, ended_at, deadline_at, expires_at,
  parent_operation_id
FROM operation_rows
WHERE state = :state AND ended_at IS NOT NULL AND state <> 'succeeded' AND id < :before AND id > :floor
  AND (:state IS NULL OR state = :state)
  AND (:effect IS NULL OR effect = :effect)
  AND (:run_id IS NULL OR run_id = :run_id)
  AND (:tool IS NULL OR tool = :tool)
  AND (:unsettled = 0 OR listed = 1)
  AND (:reason IS NULL OR reason = :reason)
  AND (:overdue_at IS NULL OR (state <> 'awaiting_approval' AND coalesce(deadline_at, expires_at) < :overdue_at))
ORDER BY id DESC LIMIT :limit;

-- name: floor_open
SELECT id FROM operations WHERE ended_at IS NULL AND accepted_seq > 0 AND +id < :before ORDER BY accepted_seq DESC LIMIT 1 OFFSET :window;

-- name: page_open
SELECT
  id, command, run, receipt_seq, listed, operation_id, command_id, run_id, origin, tool, args_digest, write,
  identical, repeat, state, effect, effect_by, guards, reason, error_means, receipt, attempt_count, metadata,
  accepted_seq, started_seq, result_seq, accepted_at, started_at, ended_at, deadline_at, expires_at,
  parent_operation_id
FROM operation_rows
WHERE ended_at IS NULL AND accepted_seq > 0 AND +id < :before AND +id > :floor
  AND (:state IS NULL OR state = :state)
  AND (:effect IS NULL OR effect = :effect)
  AND (:run_id IS NULL OR run_id = :run_id)
  AND (:tool IS NULL OR tool = :tool)
  AND (:unsettled = 0 OR listed = 1)
  AND (:reason IS NULL OR reason = :reason)
  AND (:overdue_at IS NULL OR (state <> 'awaiting_approval' AND coalesce(deadline_at, expires_at) < :overdue_at))
ORDER BY accepted_seq DESC LIMIT :limit;
