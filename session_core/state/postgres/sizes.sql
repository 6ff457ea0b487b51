-- name: list_relations
-- A table and all its indexes, apart from those of words, which are the search index.
SELECT CASE base.relname
        WHEN 'session_rows' THEN 'sessions' WHEN 'message_rows' THEN 'messages'
        WHEN 'usage_rows' THEN 'session_model_usage' WHEN 'meta_rows' THEN 'state_meta'
        WHEN 'route_rows' THEN 'gateway_routing' WHEN 'lock_rows' THEN 'compression_locks'
        WHEN 'session_state_rows' THEN 'ms_session_state'
        WHEN 'shared_state_rows' THEN 'ms_shared_state' ELSE base.relname END,
    pg_total_relation_size(base.oid),
    base.relname IN ('word_rows', 'text_queue')
FROM pg_class AS base
WHERE base.relkind = 'r' AND base.relnamespace = current_schema()::regnamespace
