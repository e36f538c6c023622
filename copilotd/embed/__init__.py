"""Text to vectors: models on disk, windows that fit them, and the encoder."""
