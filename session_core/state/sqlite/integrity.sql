-- name: list_index_tables
SELECT name FROM sqlite_master
WHERE type = 'table' AND sql LIKE 'CREATE VIRTUAL TABLE%USING fts5%' ORDER BY name

-- name: list_virtual_tables
SELECT CAST(name AS TEXT), CAST(sql AS TEXT) FROM sqlite_master
WHERE type = 'table' AND sql LIKE 'CREATE VIRTUAL TABLE%' ORDER BY name

-- name: list_triggers
SELECT CAST(tbl_name AS TEXT), CAST(sql AS TEXT) FROM sqlite_master
WHERE type = 'trigger' AND sql IS NOT NULL

-- name: count_unindexed
SELECT count(*) FROM messages WHERE id NOT IN (SELECT id FROM messages_fts_content)

-- name: list_trees
SELECT name, tbl_name FROM sqlite_master WHERE rootpage > 0

-- name: list_bytes
SELECT name, pgsize FROM dbstat WHERE aggregate = TRUE

-- name: list_tables
SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'

-- name: list_indexes
SELECT name, partial FROM pragma_index_list(?)

-- name: list_index_columns
SELECT name FROM pragma_index_info(?)

-- name: get_schema_bytes
SELECT sum(coalesce(length(sql), 0) + 60) FROM sqlite_master
