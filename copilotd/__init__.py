"""Docs Copilot's daemon: keeps documentation in memory and answers questions about it with sources."""

__version__ = "0.1.0"
