"""Faults in a real service: workers that are killed, stopped, added or cut off, a dispatcher that is restarted."""
