"""Deep mode: a question is planned, searched for in several ways, answered, and looked into once more."""
