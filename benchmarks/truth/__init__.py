"""How far the figures of this project are off, against planted truth."""
