-- name: set_session_state
INSERT INTO session_state_rows (session_id, key, value_json) VALUES (?, ?, ?)
ON CONFLICT (home_id, session_id, key) DO UPDATE SET value_json = excluded.value_json

-- name: set_shared_state
INSERT INTO shared_state_rows (app, user_id, key, value_json) VALUES (?, ?, ?, ?)
ON CONFLICT (home_id, app, user_id, key) DO UPDATE SET value_json = excluded.value_json
