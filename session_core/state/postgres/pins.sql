-- name: put_pin
INSERT INTO pins (session_id) VALUES (?) ON CONFLICT DO NOTHING
