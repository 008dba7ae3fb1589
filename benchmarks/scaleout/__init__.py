"""Past one host: predicts whether workers on other hosts pay, how many, and where to cut the pipeline."""
