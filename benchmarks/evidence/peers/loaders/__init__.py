"""Other libraries' loaders, one small module for each library; a module is imported only in its peer's process."""
