-- The journal's one row.

-- name: read_head
SELECT
  file_id, journal_id, created_at, last_seq, chain, acked_seq, plane_frame_bytes_max,
  fence_reason, fence_detail, fence_at, key_check, counts, digest
FROM journal WHERE one = 1;

-- name: has_histories
SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'histories';

-- name: histories
SELECT id, journal_id, base, last, chain, acked, ended_at, digest FROM histories ORDER BY id;

-- name: insert_history
INSERT INTO histories (journal_id, base, last, chain, acked, ended_at, digest) VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: set_mark
INSERT INTO marks (name, detail, at, digest) VALUES (?, ?, ?, ?) ON CONFLICT (name) DO NOTHING;

-- name: mark
SELECT detail, at FROM marks WHERE name = ?;

-- name: delete_mark
DELETE FROM marks WHERE name = ?;

-- name: marks
SELECT name, detail, at, digest FROM marks ORDER BY name;

-- name: write_head
INSERT OR REPLACE INTO journal (
  one, file_id, journal_id, created_at, last_seq, chain, acked_seq, plane_frame_bytes_max,
  fence_reason, fence_detail, fence_at, key_check, counts, digest
) VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);
