"""The tools, one file a noun or a job: arguments in, a mapping out."""
