-- name: list_meta
SELECT key, value FROM state_meta
WHERE key >= :first AND key > :after AND key < :end ORDER BY key LIMIT :limit

-- name: list_session_state
SELECT key, value_json FROM ms_session_state WHERE session_id = ? ORDER BY key

-- name: set_session_state
INSERT INTO ms_session_state (session_id, key, value_json) VALUES (?, ?, ?)
ON CONFLICT(session_id, key) DO UPDATE SET value_json = excluded.value_json

-- name: delete_session_state
DELETE FROM ms_session_state WHERE session_id = ? AND key = ?

-- name: copy_session_state
INSERT INTO ms_session_state (session_id, key, value_json)
SELECT :target, key, value_json FROM ms_session_state WHERE session_id = :source

-- name: list_shared_state
SELECT key, value_json FROM ms_shared_state WHERE app = ? AND user_id = ? ORDER BY key

-- name: set_shared_state
INSERT INTO ms_shared_state (app, user_id, key, value_json) VALUES (?, ?, ?, ?)
ON CONFLICT(app, user_id, key) DO UPDATE SET value_json = excluded.value_json

-- name: delete_shared_state
DELETE FROM ms_shared_state WHERE app = ? AND user_id = ? AND key = ?
