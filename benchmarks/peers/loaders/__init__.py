"""Other libraries' loaders, one small module a library, each imported in its own process only."""
