-- The events, their payloads, and the dead letters among them.

-- name: insert_event
INSERT INTO events (seq, kind, at, run, command, operation, terminal, digest, chain, body)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: event
SELECT seq, kind, at, run_id, command_id, operation_id, terminal, digest, chain, body
FROM event_rows WHERE seq = ?;

-- name: events_after
SELECT seq, kind, at, run_id, command_id, operation_id, terminal, digest, chain, body
FROM event_rows WHERE seq > ? ORDER BY seq LIMIT ?;

-- name: last_seq
SELECT max(seq) FROM events;

-- name: chain_at
SELECT chain FROM events WHERE seq = ?;

-- name: events_of_operation
SELECT seq FROM events AS e
WHERE
  operation = (SELECT id FROM operations WHERE operation_id = ?) AND operation IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM dead_letters AS d WHERE d.requeued_as = e.seq)
ORDER BY seq LIMIT ?;

-- name: newest_of_kind
SELECT body FROM events AS e
WHERE operation = ? AND kind = ? AND NOT EXISTS (SELECT 1 FROM dead_letters AS d WHERE d.requeued_as = e.seq)
ORDER BY seq DESC LIMIT 1;

-- name: insert_payload
INSERT INTO payloads (seq, digest, redact, body, pieces) VALUES (?, ?, ?, ?, ?);

-- name: insert_piece
INSERT INTO pieces (of, n, body) VALUES (?, ?, ?);

-- name: pieces
SELECT n, body FROM pieces WHERE of = ? ORDER BY n;

-- name: shred
INSERT INTO shreds (of, secret) SELECT pieces, ? FROM payloads WHERE seq = ? AND pieces IS NOT NULL;

-- name: next_shred
SELECT of, secret FROM shreds WHERE of > 0 ORDER BY of LIMIT 1;

-- name: last_piece
SELECT id, length(body) FROM pieces WHERE of = ? ORDER BY n DESC LIMIT 1;

-- name: has_pieces
SELECT EXISTS (SELECT 1 FROM pieces WHERE of = ?);

-- name: delete_piece
DELETE FROM pieces WHERE id = ?;

-- name: delete_shred
DELETE FROM shreds WHERE of = ?;

-- name: move_payload
UPDATE payloads SET seq = ? WHERE seq = ?;

-- name: payload
SELECT body, pieces FROM payloads WHERE seq = ?;

-- name: command_data
SELECT redact, body, pieces FROM payloads WHERE seq = ?;

-- name: set_redact
UPDATE payloads SET redact = ? WHERE seq = ? AND body IS NOT NULL AND redact IS NOT ?;

-- name: set_due
UPDATE payloads SET due = ? WHERE seq = ? AND redact IS NOT NULL AND body IS NOT NULL AND due IS NOT ?;

-- name: next_due
SELECT due FROM payloads WHERE due IS NOT NULL ORDER BY due LIMIT 1;

-- name: due
SELECT seq, length(body) FROM payloads WHERE due IS NOT NULL AND due <= ? ORDER BY due LIMIT ?;

-- name: erase
UPDATE payloads SET body = NULL, due = NULL, pieces = NULL WHERE seq = ?;

-- name: body
SELECT body FROM events WHERE seq = ?;

-- name: is_parked
SELECT 1 FROM dead_letters WHERE seq = ?;

-- name: insert_dead_letter
INSERT INTO dead_letters (seq, code, message, at, requeued_as, digest) VALUES (?, ?, ?, ?, NULL, ?)
ON CONFLICT (seq) DO NOTHING;

-- name: dead_letters
SELECT d.seq, e.kind, d.code, d.message, d.at, d.requeued_as
FROM dead_letters AS d CROSS JOIN events AS e ON e.seq = d.seq
WHERE d.seq > ? ORDER BY d.seq LIMIT ?;

-- name: dead_letter
SELECT code, message, at, requeued_as FROM dead_letters WHERE seq = ?;

-- name: set_requeued
UPDATE dead_letters SET requeued_as = ?, digest = ? WHERE seq = ?;

-- name: count_dead_letters
SELECT count(*) FROM (SELECT 1 FROM dead_letters WHERE requeued_as IS NULL LIMIT ?);

-- name: links_after
SELECT seq, digest, chain, body FROM events WHERE seq > ? ORDER BY seq LIMIT ?;

-- name: event_to_erase
SELECT kind, body FROM events WHERE seq = ?;

-- name: weight
-- How many bytes an event and its payload have, and whether that is in pieces.
SELECT
  coalesce(length(e.body), 0) + coalesce(length(p.body), 0), p.pieces IS NOT NULL
FROM events AS e LEFT JOIN payloads AS p ON p.seq = e.seq WHERE e.seq = ?;

-- name: erase_event
UPDATE events SET body = NULL WHERE seq = ?;

-- name: insert_remains
INSERT INTO remains (seq, body, digest) VALUES (?, ?, ?);

-- name: any_erasure
SELECT 1 FROM erasures WHERE command > 0 LIMIT 1;

-- name: erasure
SELECT done FROM erasures WHERE command = ?;

-- name: next_erasure
SELECT 1 FROM erasures WHERE done = 0 AND command > 0 LIMIT 1;

-- name: erasures_due
SELECT c.id, c.operation_id, c.accepted_seq, c.receipt_seq
FROM erasures AS x CROSS JOIN commands AS c ON c.id = x.command WHERE x.done = 0 AND x.command > 0
ORDER BY x.command LIMIT ?;

-- name: erasures_left
SELECT count(*) FROM (SELECT 1 FROM erasures WHERE done = 0 AND command > 0 LIMIT ?);

-- name: demand_erasure
INSERT INTO erasures (command, done) VALUES (?, 0) ON CONFLICT (command) DO NOTHING;

-- name: erasure_done
INSERT INTO erasures (command, done) VALUES (?, 1) ON CONFLICT (command) DO UPDATE SET done = 1;

-- name: commands_to_erase
SELECT c.id, c.kind, c.operation_id, c.receipt_seq, c.accepted_seq IS NOT NULL AND x.command IS NULL
FROM commands AS c LEFT JOIN erasures AS x ON x.command = c.id
WHERE c.run = ? AND c.id > ? ORDER BY c.id LIMIT ?;

-- name: walk
SELECT after, erased, unsettled, unacknowledged, kept FROM walks
WHERE command = (SELECT id FROM commands WHERE command_id = ?);

-- name: set_walk
INSERT OR REPLACE INTO walks (command, after, erased, unsettled, unacknowledged, kept, digest)
SELECT id, ?, ?, ?, ?, ?, ? FROM commands WHERE command_id = ?;

-- name: erase_operation
UPDATE operations SET receipt = NULL, metadata = CASE WHEN metadata IS NOT NULL THEN '{}' END WHERE id = ?;

-- name: remains
SELECT body FROM remains WHERE seq = ?;
