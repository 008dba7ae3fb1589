"""tf.data service: starts dispatchers and workers, compares a local service with threads, and plants faults in one."""
