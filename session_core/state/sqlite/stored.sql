-- name: list_columns
SELECT name, dflt_value FROM pragma_table_info(?)

-- name: list_keys
SELECT name FROM pragma_table_info(?) WHERE pk > 0 ORDER BY pk

-- name: list_links
SELECT keys.id, keys."from", coalesce(parents.name, keys."table"), coalesce(columns.name, keys."to")
FROM pragma_foreign_key_list(?) AS keys
LEFT JOIN sqlite_master AS parents
  ON parents.type = 'table' AND parents.name = keys."table" COLLATE NOCASE
LEFT JOIN pragma_table_info(parents.name) AS columns ON columns.name = keys."to" COLLATE NOCASE
ORDER BY keys.id, keys.seq
