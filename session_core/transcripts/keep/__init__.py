"""Kept copies of transcripts, which stand in for sources that their agent deletes."""
