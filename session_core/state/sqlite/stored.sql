-- name: list_columns
SELECT name, dflt_value FROM pragma_table_info(?)

-- name: list_keys
SELECT name FROM pragma_table_info(?) WHERE pk > 0 ORDER BY pk

-- name: list_links
SELECT id, "from", "table", "to" FROM pragma_foreign_key_list(?) ORDER BY id, seq
