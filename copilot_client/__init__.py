"""Docs Copilot's terminal client: small, starts fast, knows nothing of models or indexes."""
