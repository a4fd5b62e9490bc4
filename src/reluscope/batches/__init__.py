"""Many questions at once, with all answers in one file.

| module | holds |
|---|---|
| `instances` | the questions: from a table, from rows, from two folders; their digests and seeds |
| `task` | one question, asked: what a worker does |
| `store` | the file of results (SQLite): what was asked, what was answered, what failed |
| `record` | `Batch`: the table that comes back |
| `run` | `batch`: ask what has no answer yet |
"""
