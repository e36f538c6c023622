"""Conversations: what was asked before, kept on this machine, and follow-ups made into questions of their own."""
