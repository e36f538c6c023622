"""The write path: what changed on disk is read, stored and embedded, in the background or while a question waits."""
