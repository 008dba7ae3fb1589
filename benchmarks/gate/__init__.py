"""Images/sec in CI: compare, record, check."""
