-- The search index of a home of our own: words only, without a copy of the text. It is fed by
-- index.py, in batches, and never by triggers: a flag that is flipped costs it nothing. What it gets
-- is folded and cut into words already, so that it depends on no Unicode table of SQLite: to this
-- tokenizer all that is not ASCII is a letter.
CREATE VIRTUAL TABLE IF NOT EXISTS ms_index
USING fts5(body, content='', columnsize=0, tokenize=ascii);
-- The messages whose text changed after it was indexed, in the order of the changes. The triggers
-- also run on the connections of other programs, which is why they use plain SQL alone.
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
