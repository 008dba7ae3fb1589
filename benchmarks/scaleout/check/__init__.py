"""Holds the predictions of scaleout against pools of hosts that this host emulates."""
