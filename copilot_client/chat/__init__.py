"""The chat: a loop of questions in one conversation, in a terminal or a pipe."""
