-- name: list_holders
SELECT host, space, pid, started_at FROM holders WHERE expires_at > now() ORDER BY host, pid

-- name: delete_holder
DELETE FROM holders WHERE token = ?

-- name: note_holder
DELETE FROM holders WHERE expires_at <= now();
INSERT INTO holder_rows (token, host, space, pid, started_at, expires_at)
VALUES ('{token}', '{host}', '{space}', {pid}, {started_at}, now() + interval '{kept_s} seconds')
ON CONFLICT (home_id, token) DO UPDATE SET expires_at = excluded.expires_at
