"""Explains what the system refused (files, memory, threads, descriptors) in a sentence with a remedy."""

from __future__ import annotations

import errno
import os

from layermem.errors import InputError

REMEDIES = {
    errno.EACCES: "change its permissions, or those of its folders",
    errno.EPERM: "change its permissions, or those of its folders",
    errno.ENOENT: "give one that exists",
    errno.EISDIR: "give a file",
    errno.ENOTDIR: "correct the path, of which a part is a file",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "end other programs, which have too many files open",
    errno.ENOMEM: "free some memory, or raise the limit (ulimit -v)",
    errno.EAGAIN: "end other processes, or raise the limit of processes (ulimit -u)",
    errno.ENOSPC: "free some space, or write to another disk",
    errno.EDQUOT: "free some space, or write to another disk",
    errno.EROFS: "write to another folder",
}
# Python has no class or number for these.
WORDS = {
    "can't start new thread": f"the system starts no further thread; {REMEDIES[errno.EAGAIN]}",
    "Could not determine home directory": "there is no home folder for this user; set HOME to a folder",
}
NO_MEMORY = (
    (MemoryError, ""),
    (ImportError, "failed to map segment"),  # of a library
    (SystemError, "exception"),  # without one being set, where an allocation within CPython failed
    (TypeError, "out of memory"),  # of protobuf
)


def remedy_of(error: OSError | ValueError, otherwise: str) -> str:
    """The remedy for an error of the system; `otherwise` where its number does not imply one."""
    return REMEDIES.get(getattr(error, "errno", None) or 0, otherwise)


def system_fault(error: BaseException) -> InputError | None:
    """The error of a system that refused a file, memory or a thread; None for other errors, which are ours."""
    if any(isinstance(error, kind) and words in str(error) for kind, words in NO_MEMORY):
        return InputError(f"there is no memory left; {REMEDIES[errno.ENOMEM]}")
    if isinstance(error, RuntimeError):
        return next((InputError(sentence) for words, sentence in WORDS.items() if words in str(error)), None)
    if not isinstance(error, OSError) or error.errno is None:
        return None
    if error.errno == errno.ENOENT and error.filename is None and working_folder() is None:
        return InputError("the working folder has been removed; change to one that exists")
    remedy = remedy_of(error, "try again, or another file" if error.filename else "try again")
    path = None if error.filename is None else os.fsdecode(error.filename)
    return InputError(f"{error.strerror or os.strerror(error.errno)}; {remedy}", path=path)


def working_folder() -> str | None:
    """The working folder of this process; None if it has been removed."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return None
