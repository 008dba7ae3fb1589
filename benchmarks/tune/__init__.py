"""The fastest pipeline for a folder, a model and a device; or advice for a user's own pipeline."""
