-- name: list_pins
SELECT session_id FROM pins ORDER BY session_id

-- name: put_pin
INSERT OR IGNORE INTO pins (session_id) VALUES (?)

-- name: delete_pin
DELETE FROM pins WHERE session_id = ?
