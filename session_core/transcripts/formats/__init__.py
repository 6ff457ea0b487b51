"""Formats of transcripts, one module for each agent."""
