-- name: create_meta
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID

-- name: create_sources
CREATE TABLE IF NOT EXISTS sources (
  id INTEGER PRIMARY KEY,
  store TEXT NOT NULL,
  root TEXT NOT NULL,
  path TEXT NOT NULL,
  device INTEGER NOT NULL,
  inode INTEGER NOT NULL,
  size INTEGER NOT NULL,
  mtime_ns INTEGER NOT NULL,
  offset INTEGER NOT NULL,
  checksum INTEGER NOT NULL,
  is_read INTEGER NOT NULL,
  is_unchecked INTEGER NOT NULL,
  version INTEGER NOT NULL,
  state TEXT NOT NULL,
  unknown TEXT NOT NULL,
  newest_at INTEGER,
  change INTEGER NOT NULL,
  UNIQUE (root, path, store)
)

-- name: create_source_changes
CREATE INDEX IF NOT EXISTS source_changes ON sources (change)

-- name: create_sessions
CREATE TABLE IF NOT EXISTS sessions (
  id INTEGER PRIMARY KEY,
  source_id INTEGER NOT NULL,
  store TEXT NOT NULL,
  session_id TEXT NOT NULL,
  native_id TEXT NOT NULL,
  resume_id TEXT,
  title TEXT,
  title_rank INTEGER,
  preview TEXT,
  preview_number INTEGER,
  folder TEXT,
  branch TEXT,
  model TEXT,
  agent_version TEXT,
  started_at INTEGER,
  newest_at INTEGER,
  active_at INTEGER NOT NULL,
  parent_id TEXT,
  link TEXT,
  archived INTEGER NOT NULL,
  is_read INTEGER NOT NULL,
  messages INTEGER NOT NULL,
  compacted_to INTEGER NOT NULL,
  input_tokens INTEGER NOT NULL,
  output_tokens INTEGER NOT NULL,
  cache_read_tokens INTEGER NOT NULL,
  cache_write_tokens INTEGER NOT NULL,
  reasoning_tokens INTEGER NOT NULL,
  cost_usd REAL NOT NULL
)

-- name: create_session_ids
CREATE UNIQUE INDEX IF NOT EXISTS session_ids ON sessions (session_id, store)

-- name: create_native_ids
CREATE INDEX IF NOT EXISTS native_ids ON sessions (native_id, store)

-- name: create_session_sources
CREATE INDEX IF NOT EXISTS session_sources ON sessions (source_id)

-- name: create_session_activity
CREATE INDEX IF NOT EXISTS session_activity ON sessions (active_at DESC, store, session_id DESC)

-- name: create_session_parents
CREATE INDEX IF NOT EXISTS session_parents ON sessions (parent_id, store) WHERE parent_id IS NOT NULL

-- name: create_messages
CREATE TABLE IF NOT EXISTS messages (
  id INTEGER PRIMARY KEY,
  session INTEGER NOT NULL,
  number INTEGER NOT NULL,
  place INTEGER NOT NULL,
  length INTEGER NOT NULL,
  at INTEGER,
  flags INTEGER NOT NULL,
  tool INTEGER,
  key INTEGER
)

-- name: create_message_places
CREATE UNIQUE INDEX IF NOT EXISTS message_places ON messages (session, number)

-- name: create_message_keys
CREATE INDEX IF NOT EXISTS message_keys ON messages (key) WHERE key IS NOT NULL

-- name: create_facts
CREATE TABLE IF NOT EXISTS facts (
  native_id TEXT NOT NULL,
  store TEXT NOT NULL,
  source_id INTEGER NOT NULL,
  facts TEXT NOT NULL,
  PRIMARY KEY (native_id, store, source_id)
) WITHOUT ROWID

-- name: create_tools
CREATE TABLE IF NOT EXISTS tools (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE)

-- name: create_blocks
CREATE TABLE IF NOT EXISTS blocks (first_id INTEGER PRIMARY KEY, last_id INTEGER NOT NULL, newest_at INTEGER, oldest_at INTEGER)

-- name: create_words
CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5(text, content='', columnsize=0, tokenize='ascii')

-- name: configure_words
INSERT INTO words (words, rank) VALUES ('hashsize', 8000000), ('automerge', 8)

-- name: put_epoch
INSERT OR IGNORE INTO meta VALUES ('epoch', abs(random()) >> 11)

-- name: list_places
SELECT number, key FROM messages WHERE session = ?

-- name: get_meta
SELECT value FROM meta WHERE key = ?

-- name: put_meta
INSERT OR REPLACE INTO meta VALUES (?, ?)

-- name: list_changed_sources
SELECT id, store, root, path, device, inode, size, mtime_ns, offset, checksum, is_read, is_unchecked,
       version, state, unknown, newest_at, change
FROM sources WHERE change > ? ORDER BY change

-- name: get_source_change
SELECT change FROM sources WHERE id = ?

-- name: put_source
INSERT OR REPLACE INTO sources VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: touch_source
UPDATE sources
SET root = ?, path = ?, device = ?, inode = ?, size = ?, mtime_ns = ?, is_read = ?, is_unchecked = ?, change = ?
WHERE id = ?

-- name: delete_source
DELETE FROM sources WHERE id = ?

-- name: list_source_sessions
SELECT id, native_id FROM sessions WHERE source_id = ?

-- name: get_session_state
SELECT * FROM sessions WHERE source_id = ? AND native_id = ?

-- name: find_native_sessions
SELECT s.id, s.session_id, f.root || '/' || f.path, s.messages
FROM sessions s JOIN sources f ON f.id = s.source_id
WHERE s.native_id = ? AND s.store = ?

-- name: rename_session
UPDATE sessions SET session_id = ? WHERE id = ?

-- name: put_session
INSERT OR REPLACE INTO sessions VALUES (
  :id, :source_id, :store, :session_id, :native_id, :resume_id, :title, :title_rank, :preview, :preview_number,
  :folder, :branch, :model, :agent_version, :started_at, :newest_at, :active_at, :parent_id, :link,
  :archived, :is_read, :messages, :compacted_to, :input_tokens, :output_tokens,
  :cache_read_tokens, :cache_write_tokens, :reasoning_tokens, :cost_usd)

-- name: put_facts
INSERT OR REPLACE INTO facts VALUES (?, ?, ?, ?)

-- name: find_facts
SELECT facts FROM facts WHERE native_id = ? AND store = ?

-- name: delete_facts
DELETE FROM facts WHERE source_id = ?

-- name: list_other_sessions
SELECT * FROM sessions WHERE native_id = ? AND store = ? AND source_id <> ?

-- name: finish_sessions
UPDATE sessions SET is_read = 1, active_at = coalesce(newest_at, active_at)
WHERE source_id = ? AND NOT is_read

-- name: delete_session
DELETE FROM sessions WHERE id = ?

-- name: get_next_session
SELECT coalesce(max(id), 0) + 1 FROM sessions

-- name: get_next_source
SELECT coalesce(max(id), 0) + 1 FROM sources

-- name: put_message
INSERT OR REPLACE INTO messages VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: put_words
INSERT INTO words (rowid, text) VALUES (?, ?)

-- name: find_key
SELECT id, number FROM messages WHERE key = ? AND session = ?

-- name: count_messages_from
SELECT count(*) FROM messages WHERE session = ? AND number >= ?

-- name: delete_messages_from
DELETE FROM messages WHERE session = ? AND number >= ?

-- name: delete_message
DELETE FROM messages WHERE id = ?

-- name: find_last_prompts
SELECT number FROM messages WHERE session = ? AND flags & 8 ORDER BY number DESC LIMIT 1 OFFSET ?

-- name: get_block
SELECT first_id, last_id, newest_at, oldest_at FROM blocks ORDER BY first_id DESC LIMIT 1

-- name: put_block
INSERT OR REPLACE INTO blocks VALUES (?, ?, ?, ?)

-- name: find_source
SELECT id FROM sources WHERE root = ? AND path = ? AND store = ?

-- name: get_session_id
SELECT native_id, store FROM sessions WHERE id = ?

-- name: list_tools
SELECT id, name FROM tools

-- name: put_tool
INSERT INTO tools VALUES (?, ?)
