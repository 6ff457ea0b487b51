-- The search index of a home of our own: words only, without a copy of the text. It is fed by
-- index.py, in batches, and never by triggers: a flag that is flipped costs it nothing. What it gets
-- is folded and cut into words already, so that it depends on no Unicode table of SQLite: to this
-- tokenizer all that is not ASCII is a letter.
CREATE VIRTUAL TABLE ms_index USING fts5(body, content='', columnsize=0, tokenize=ascii);
