-- name: create_settings
CREATE TABLE IF NOT EXISTS settings (key TEXT PRIMARY KEY, value) WITHOUT ROWID

-- name: create_copies
CREATE TABLE IF NOT EXISTS copies (
  id INTEGER PRIMARY KEY,
  store TEXT NOT NULL,
  root TEXT NOT NULL,
  path TEXT NOT NULL,
  session_id TEXT NOT NULL,
  kind TEXT NOT NULL,
  device INTEGER NOT NULL,
  inode INTEGER NOT NULL,
  size INTEGER NOT NULL,
  mtime_ns INTEGER NOT NULL,
  is_whole INTEGER NOT NULL,
  is_unchecked INTEGER NOT NULL,
  kept_at REAL NOT NULL,
  change INTEGER NOT NULL,
  UNIQUE (root, path, store)
)

-- name: create_copy_changes
CREATE INDEX IF NOT EXISTS copy_changes ON copies (change)

-- name: create_copy_sessions
CREATE INDEX IF NOT EXISTS copy_sessions ON copies (session_id, store)

-- name: create_pieces
CREATE TABLE IF NOT EXISTS pieces (
  copy INTEGER NOT NULL,
  offset INTEGER NOT NULL,
  chunk INTEGER NOT NULL,
  PRIMARY KEY (copy, offset)
) WITHOUT ROWID

-- name: create_piece_chunks
CREATE INDEX IF NOT EXISTS piece_chunks ON pieces (chunk)

-- name: create_chunks
CREATE TABLE IF NOT EXISTS chunks (
  id INTEGER PRIMARY KEY,
  digest BLOB NOT NULL UNIQUE,
  length INTEGER NOT NULL,
  data BLOB NOT NULL
)

-- name: create_databases
CREATE TABLE IF NOT EXISTS databases (
  store TEXT NOT NULL,
  root TEXT NOT NULL,
  path TEXT NOT NULL,
  version INTEGER NOT NULL,
  device INTEGER NOT NULL,
  inode INTEGER NOT NULL,
  size INTEGER NOT NULL,
  mtime_ns INTEGER NOT NULL,
  state TEXT NOT NULL,
  PRIMARY KEY (root, path, store)
) WITHOUT ROWID

-- name: create_changed_sessions
CREATE TABLE IF NOT EXISTS changed_sessions (
  store TEXT NOT NULL,
  root TEXT NOT NULL,
  path TEXT NOT NULL,
  session_id TEXT NOT NULL,
  change INTEGER NOT NULL,
  PRIMARY KEY (root, path, store, session_id)
) WITHOUT ROWID

-- name: create_exclusions
CREATE TABLE IF NOT EXISTS exclusions (
  store TEXT NOT NULL,
  session_id TEXT NOT NULL,
  parent_id TEXT NOT NULL,
  forgotten_at REAL NOT NULL,
  PRIMARY KEY (store, session_id)
) WITHOUT ROWID

-- name: create_plans
CREATE TABLE IF NOT EXISTS plans (
  handle TEXT PRIMARY KEY,
  target TEXT NOT NULL,
  sessions TEXT NOT NULL,
  expires_at REAL NOT NULL
) WITHOUT ROWID

-- name: get_setting
SELECT value FROM settings WHERE key = ?

-- name: put_setting
INSERT OR REPLACE INTO settings VALUES (?, ?)

-- name: list_changed_copies
SELECT id, store, root, path, session_id, kind, device, inode, size, mtime_ns, is_whole, is_unchecked, change
FROM copies WHERE change > ? ORDER BY change

-- name: get_copy_change
SELECT id, change FROM copies WHERE root = ? AND path = ? AND store = ?

-- name: add_copy
INSERT INTO copies (store, root, path, session_id, kind, device, inode, size, mtime_ns, is_whole, is_unchecked, kept_at, change)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: update_copy
UPDATE copies
SET store = ?, root = ?, path = ?, session_id = ?, kind = ?, device = ?, inode = ?, size = ?, mtime_ns = ?,
    is_whole = ?, is_unchecked = ?, kept_at = ?, change = ?
WHERE id = ?

-- name: set_sidecar_session
UPDATE copies SET session_id = ?, change = ? WHERE store = ? AND root = ? AND path = ? AND kind = 'sidecar'

-- name: delete_copy
DELETE FROM copies WHERE id = ?

-- name: list_pieces
SELECT p.offset, c.length, c.digest FROM pieces p JOIN chunks c ON c.id = p.chunk
WHERE p.copy = ? AND p.offset >= ? ORDER BY p.offset LIMIT ?

-- name: read_piece
SELECT p.offset, c.length, c.data FROM copies k JOIN pieces p ON p.copy = k.id JOIN chunks c ON c.id = p.chunk
WHERE k.id = ? AND k.change = ? AND p.offset <= ? ORDER BY p.offset DESC LIMIT 1

-- name: find_piece
SELECT p.offset FROM pieces p WHERE p.copy = ? AND p.offset <= ? ORDER BY p.offset DESC LIMIT 1

-- name: find_last_piece
SELECT max(offset) FROM pieces WHERE copy = ?

-- name: list_chunks_from
SELECT DISTINCT chunk FROM pieces WHERE copy = ? AND offset >= ?

-- name: delete_pieces_from
DELETE FROM pieces WHERE copy = ? AND offset >= ?

-- name: put_piece
INSERT INTO pieces VALUES (?, ?, ?)

-- name: find_chunk
SELECT id FROM chunks WHERE digest = ?

-- name: add_chunk
INSERT INTO chunks (digest, length, data) VALUES (?, ?, ?)

-- name: delete_unused_chunk
DELETE FROM chunks WHERE id = ? AND NOT EXISTS (SELECT 1 FROM pieces WHERE chunk = ?)

-- name: get_database
SELECT version, device, inode, size, mtime_ns, state FROM databases WHERE root = ? AND path = ? AND store = ?

-- name: put_database
INSERT OR REPLACE INTO databases VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: delete_databases
DELETE FROM databases WHERE store = ?

-- name: note_changed_session
INSERT OR REPLACE INTO changed_sessions VALUES (?, ?, ?, ?, ?)

-- name: list_changed_sessions
SELECT session_id, change FROM changed_sessions WHERE root = ? AND path = ? AND store = ?
ORDER BY change DESC LIMIT ?

-- name: delete_changed_session
DELETE FROM changed_sessions WHERE root = ? AND path = ? AND store = ? AND session_id = ? AND change = ?

-- name: delete_changed_sessions
DELETE FROM changed_sessions WHERE store = ? AND (session_id = ? OR ? = '')

-- name: list_exclusions
SELECT store, session_id, parent_id, forgotten_at FROM exclusions ORDER BY forgotten_at, store, session_id

-- name: put_exclusion
INSERT OR REPLACE INTO exclusions VALUES (?, ?, ?, ?)

-- name: delete_exclusion
DELETE FROM exclusions WHERE store = ? AND (session_id = ? OR (parent_id = ? AND parent_id <> ''))

-- name: list_session_copies
SELECT id FROM copies WHERE store = ? AND (session_id = ? OR ? = '')

-- name: list_kept_sessions
SELECT DISTINCT session_id FROM copies WHERE store = ?

-- name: count_session_bytes
SELECT coalesce(sum(size), 0) FROM copies WHERE store = ? AND (session_id = ? OR ? = '')

-- name: count_kept
SELECT store, count(DISTINCT session_id), sum(size) FROM copies GROUP BY store

-- name: put_plan
INSERT INTO plans VALUES (?, ?, ?, ?)

-- name: get_plan
SELECT target, sessions, expires_at FROM plans WHERE handle = ?

-- name: delete_plan
DELETE FROM plans WHERE handle = ?

-- name: delete_old_plans
DELETE FROM plans WHERE expires_at < ?
