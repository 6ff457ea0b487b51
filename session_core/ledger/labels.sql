-- name: get_label
SELECT title, archived, pinned FROM labels WHERE store = ? AND session_id = ?

-- name: list_titles
SELECT store, session_id, title FROM labels
WHERE title IS NOT NULL AND store IN (SELECT value FROM json_each(?))

-- name: put_label
INSERT OR REPLACE INTO labels (title, archived, pinned, store, session_id) VALUES (?, ?, ?, ?, ?)

-- name: delete_label
DELETE FROM labels WHERE store = ? AND session_id = ?

-- name: add_batch
INSERT INTO batches (id, store, what, at, expires_at) VALUES (?, ?, ?, ?, ?)

-- name: get_batch
SELECT b.*, (SELECT count(*) FROM changes c WHERE c.batch = b.id) AS count FROM batches b
WHERE id = ?

-- name: list_batches
SELECT b.*, (SELECT count(*) FROM changes c WHERE c.batch = b.id) AS count FROM batches b
WHERE number < :before AND expires_at > :now AND undone_at IS NULL AND count > 0
    AND store IN (SELECT value FROM json_each(:stores))
ORDER BY number DESC LIMIT :limit

-- name: mark_undone
UPDATE batches SET undone_at = ? WHERE id = ?

-- name: add_change
INSERT INTO changes (batch, store, session_id, before, after) VALUES (?, ?, ?, ?, ?)

-- name: list_changes
SELECT session_id, before, after FROM changes WHERE batch = ? ORDER BY session_id

-- name: forget_changes
DELETE FROM changes WHERE store = ? AND session_id = ?

-- name: delete_store_labels
DELETE FROM labels WHERE store = ?

-- name: forget_store_changes
DELETE FROM changes WHERE store = ?

-- name: add_entry
INSERT INTO audit (at, store, client, what, counts) VALUES (?, ?, ?, ?, ?)

-- name: list_entries
SELECT number, at, store, client, what, counts FROM audit
WHERE number < :before AND store IN (SELECT value FROM json_each(:stores))
ORDER BY number DESC LIMIT :limit
