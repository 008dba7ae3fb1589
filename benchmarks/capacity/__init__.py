"""Plans the hosts of a training of many accelerators, by a simulation that is held against small runs."""
