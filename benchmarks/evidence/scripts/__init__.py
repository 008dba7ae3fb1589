"""Other people's training scripts: what an expert's edit of the loading gains, and what unstall's own edit gains."""
