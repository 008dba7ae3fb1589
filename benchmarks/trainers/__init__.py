"""Several trainers of one model: what they gain over one, what they decode in vain, and for whom they wait."""
