-- name: list_routes
SELECT * FROM gateway_routing
WHERE CASE WHEN json_valid(entry_json) THEN json_extract(entry_json, '$.session_id') END
    IN (SELECT value FROM json_each(?))
ORDER BY scope, session_key
