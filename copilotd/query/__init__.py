"""The read path: retrieve, judge, answer, cite."""
