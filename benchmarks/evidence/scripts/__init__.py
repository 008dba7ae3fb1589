"""Other people's training scripts: run as they are, watched, and edited by hand."""
