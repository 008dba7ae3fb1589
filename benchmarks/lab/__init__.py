"""What every command that measures shares: options, output, child processes, sessions, photos."""
