"""`unstall pipeline --sweep`: how the rate of training changes with one setting, beside what is expected."""
