-- The search index of a home of our own: words only, without a copy of the text. Marks are part of
-- words, so that scripts that write vowels as marks are not cut in the middle. Messages are fed to
-- it by index.py, in batches, and never by triggers: a flag that is flipped costs it nothing.
CREATE VIRTUAL TABLE ms_index USING fts5(
    body, content='', columnsize=0,
    tokenize="unicode61 remove_diacritics 2 categories 'L* N* Co Mn Mc So'"
);
