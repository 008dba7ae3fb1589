"""Somebody's unmodified script, run and watched."""
