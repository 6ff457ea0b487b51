-- What is pinned in a home whose sessions have no column for it.
PRAGMA application_id = 1835234163;

PRAGMA user_version = 1;

CREATE TABLE pins (session_id TEXT PRIMARY KEY) WITHOUT ROWID;
