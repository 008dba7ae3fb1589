"""The commands: they combine what feeds, what is fed and what measures."""

import unstall  # noqa: F401 - from here on, who imports `benchmarks` decides whether it is this one
