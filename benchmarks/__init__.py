"""The commands: they combine what feeds, what is fed and what measures."""
