"""Code that all measuring commands share: options, output, child processes, sessions, photos."""
