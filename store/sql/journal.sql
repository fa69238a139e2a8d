-- The journal's one row.

-- name: read_head
SELECT
  file_id, journal_id, created_at, last_seq, chain, acked_seq, plane_frame_bytes_max,
  fence_reason, fence_detail, fence_at, key_check, counts, digest
FROM journal WHERE one = 1;

-- name: write_head
INSERT OR REPLACE INTO journal (
  one, file_id, journal_id, created_at, last_seq, chain, acked_seq, plane_frame_bytes_max,
  fence_reason, fence_detail, fence_at, key_check, counts, digest
) VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);
