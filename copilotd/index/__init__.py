"""The index: SQLite holds the truth, FAISS and FTS5 find in it."""
