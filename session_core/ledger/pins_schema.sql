-- Pinned sessions of a home whose sessions table has no column for pins.
PRAGMA application_id = 1835234163;

PRAGMA user_version = 1;

CREATE TABLE pins (session_id TEXT PRIMARY KEY) WITHOUT ROWID;
