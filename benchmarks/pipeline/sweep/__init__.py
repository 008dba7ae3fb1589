"""`unstall pipeline --sweep`: how the rate of training changes with one setting, next to what is expected."""
