-- The search index of a home of our own, without a copy of the text. fts.py fills it in batches,
-- without triggers, so a flipped flag costs nothing. Its text is already folded and split into words,
-- so it depends on no Unicode table of SQLite: this tokenizer treats every character outside of ASCII
-- as a letter.
CREATE VIRTUAL TABLE IF NOT EXISTS ms_index
USING fts5(body, content='', columnsize=0, tokenize=ascii);
-- Messages whose text changed after it was indexed, in the order of the changes. The triggers also
-- run on connections of other programs, so they use only plain SQL.
CREATE TABLE IF NOT EXISTS ms_changed (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id INTEGER NOT NULL
);
CREATE TRIGGER IF NOT EXISTS ms_message_updated
AFTER UPDATE OF id, content, tool_name, tool_calls ON messages
WHEN NEW.id IS NOT OLD.id OR NEW.content IS NOT OLD.content
    OR NEW.tool_name IS NOT OLD.tool_name OR NEW.tool_calls IS NOT OLD.tool_calls
BEGIN INSERT INTO ms_changed (id) VALUES (NEW.id); END;
CREATE TRIGGER IF NOT EXISTS ms_message_inserted AFTER INSERT ON messages
WHEN NEW.id <= (
    SELECT CAST(value AS INTEGER) FROM state_meta WHERE key = 'mcp_sessions_indexed_to'
)
BEGIN INSERT INTO ms_changed (id) VALUES (NEW.id); END;
