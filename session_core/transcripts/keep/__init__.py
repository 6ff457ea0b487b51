"""Kept copies of transcripts, which replace sources that their agent deletes."""
