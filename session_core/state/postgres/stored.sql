-- name: list_columns
WITH asked(name) AS (SELECT ?::text)
SELECT attname, NULL FROM asked JOIN pg_attribute ON attrelid = to_regclass(asked.name)
WHERE asked.name IN ('sessions', 'messages', 'session_model_usage', 'state_meta',
                     'gateway_routing', 'compression_locks', 'ms_session_state',
                     'ms_shared_state')
    AND attnum > 0 AND NOT attisdropped
ORDER BY attnum

-- name: list_keys
SELECT keys.key_column FROM (VALUES
    ('sessions', 1, 'id'), ('messages', 1, 'id'), ('state_meta', 1, 'key'),
    ('gateway_routing', 1, 'scope'), ('gateway_routing', 2, 'session_key'),
    ('compression_locks', 1, 'session_id'),
    ('ms_session_state', 1, 'session_id'), ('ms_session_state', 2, 'key'),
    ('ms_shared_state', 1, 'app'), ('ms_shared_state', 2, 'user_id'), ('ms_shared_state', 3, 'key'),
    ('session_model_usage', 1, 'session_id'), ('session_model_usage', 2, 'model'),
    ('session_model_usage', 3, 'billing_provider'), ('session_model_usage', 4, 'billing_base_url'),
    ('session_model_usage', 5, 'billing_mode'), ('session_model_usage', 6, 'task')
) AS keys(name, place, key_column) WHERE keys.name = ? ORDER BY keys.place

-- name: list_links
SELECT 0, links.key_column, 'sessions', 'id' FROM (VALUES
    ('messages', 'session_id'), ('session_model_usage', 'session_id'),
    ('sessions', 'parent_session_id'), ('ms_session_state', 'session_id')
) AS links(name, key_column) WHERE links.name = ?
