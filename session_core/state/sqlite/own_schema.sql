-- name: add_application_data
ALTER TABLE messages ADD COLUMN payload_json TEXT;
CREATE TABLE ms_session_state (
    session_id TEXT NOT NULL REFERENCES sessions(id) ON DELETE CASCADE,
    key TEXT NOT NULL,
    value_json TEXT NOT NULL,
    PRIMARY KEY (session_id, key)
);
CREATE TABLE ms_shared_state (
    app TEXT NOT NULL,
    user_id TEXT NOT NULL DEFAULT '',
    key TEXT NOT NULL,
    value_json TEXT NOT NULL,
    PRIMARY KEY (app, user_id, key)
);
CREATE INDEX idx_sessions_chat ON sessions(chat_id, source) WHERE chat_id IS NOT NULL;
