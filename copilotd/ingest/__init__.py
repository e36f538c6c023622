"""From files to chunks: scan, plan, watch, parse, chunk."""
