"""What a test's GPU raises where it refuses to start a kernel."""

from layermem.errors import DeviceError


class NotTried(DeviceError):
    """The kernel is not started; the other ops of a case are checked all the same."""
