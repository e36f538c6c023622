"""What ``copilot doctor`` looks at with the light side alone."""
