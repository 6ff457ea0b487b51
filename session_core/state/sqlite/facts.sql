-- name: list_keyed_to_sessions
SELECT DISTINCT tables.name, keys."from"
FROM sqlite_master AS tables, pragma_foreign_key_list(tables.name) AS keys
WHERE tables.type = 'table' AND tables.sql NOT LIKE 'CREATE VIRTUAL%'
  AND tables.name <> 'sessions'
  AND keys."table" = 'sessions' AND coalesce(keys."to", 'id') = 'id'
ORDER BY tables.name

-- name: has_index
SELECT 1 FROM pragma_index_list(:table) AS listed, pragma_index_info(listed.name) AS columns
WHERE listed.partial = 0 AND columns.seqno = 0 AND columns.name = :column

-- name: scan_orphans
SELECT {column}, count(*), {last_at} FROM {table}
WHERE {column} IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM sessions WHERE sessions.id = {table}.{column})
GROUP BY {column} LIMIT :most

-- name: list_orphans
-- From one session to the next through the index, whatever the number of rows between them.
WITH RECURSIVE owners(id) AS (
    SELECT min({column}) FROM {table}
    UNION ALL
    SELECT (SELECT min({column}) FROM {table} WHERE {column} > owners.id)
    FROM owners WHERE owners.id IS NOT NULL
)
SELECT owners.id, (SELECT count(*) FROM {table} WHERE {column} = owners.id),
    (SELECT {last_at} FROM {table} WHERE {column} = owners.id)
FROM owners
WHERE owners.id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM sessions WHERE sessions.id = owners.id)
LIMIT :most

-- name: list_compression_locks
SELECT session_id, holder, acquired_at, expires_at FROM compression_locks

-- name: list_turn_leases
SELECT conversation_id, holder, acquired_at, expires_at FROM session_turn_leases

-- name: list_heartbeats
SELECT backend_id, pid, host, last_heartbeat FROM gateway_heartbeats

-- name: sum_usage
SELECT {sums}, total(coalesce({actual}, {estimated})) FROM sessions

-- name: get_ends
SELECT min(id), max(id) FROM messages

-- name: get_time_at
SELECT max(timestamp) FROM (
    SELECT timestamp FROM messages WHERE id <= :id AND timestamp < '' ORDER BY id DESC LIMIT :run
)
