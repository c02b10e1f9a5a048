"""Hypothesis tries the same examples on every run, and gives a busy machine time.

    pytest --hypothesis-profile default     other examples each time
"""

from hypothesis import settings

settings.register_profile("same", deadline=None, derandomize=True)
settings.load_profile("same")
