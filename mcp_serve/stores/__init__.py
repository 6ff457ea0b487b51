"""The stores that a server serves, homes and transcripts, and the choice of one for a call."""
