"""What can go wrong, as exceptions: one for each variant of the engine's error.

Each is an `InfeedError` and also the built-in exception that a reader expects, so that
``except ValueError`` and ``except OSError`` work as usual. Messages about data name the
record; messages about settings name the parameter and the mend.
"""

__all__ = [
    "BudgetError",
    "ClosedError",
    "ConfigError",
    "DamagedError",
    "DecodeError",
    "DeviceError",
    "ForkedError",
    "FunctionError",
    "InfeedError",
    "InterruptedPackError",
    "IteratorError",
    "LoaderError",
    "OpenError",
    "OutOfMemoryError",
    "PanickedError",
    "ProcessError",
    "ReadError",
    "RecordTooLargeError",
    "ShapeError",
    "ThreadError",
    "TooManyBadError",
    "TransformError",
    "WriteError",
]


class InfeedError(Exception):
    """Base of every error that infeed raises."""


class ConfigError(InfeedError, ValueError):
    """The description of a pipeline, or an argument of ``open``, cannot work."""


class BudgetError(ConfigError):
    """The memory budget does not hold two batches and what makes them."""


class OpenError(InfeedError, OSError):
    """A dataset could not be opened or listed."""


class WriteError(InfeedError, OSError):
    """A file of a packed dataset could not be written.

    What was written before it stays; the same call goes on from there.
    """


class InterruptedPackError(InfeedError):
    """``progress`` said stop; the same call goes on from there."""


class ReadError(InfeedError, OSError):
    """The bytes of a record could not be read, after retries.

    No property of the data, so it stops the run whatever ``on_error`` says.
    """


class DamagedError(InfeedError, ValueError):
    """The bytes in the place of a record are none, or its item could not be made."""


class DecodeError(InfeedError, ValueError):
    """The bytes of a record are not what they should be."""


class TransformError(InfeedError, ValueError):
    """A transform cannot be applied to a record."""


class ShapeError(InfeedError, ValueError):
    """A record does not have the shape that its batch needs."""


class FunctionError(InfeedError, RuntimeError):
    """A function of ``.python`` or ``.python_batch`` did not take what it was given.

    The message names the record, or the batch, and says what was raised; the traceback
    of that is in the exception's notes, which Python shows below it.
    """


class ProcessError(InfeedError, OSError):
    """No process could be started for a function of ``.python(..., processes=N)``."""


class RecordTooLargeError(InfeedError, ValueError):
    """A record needs more memory than the loader may ever use for one."""


class TooManyBadError(InfeedError, ValueError):
    """More records were bad than ``max_bad`` allows."""


class OutOfMemoryError(InfeedError, MemoryError):
    """The operating system gave no memory for a batch."""


class LoaderError(InfeedError, RuntimeError):
    """The loader cannot be used like this now."""


class IteratorError(LoaderError):
    """The loader is being iterated already."""


class ClosedError(LoaderError):
    """The loader was closed."""


class ForkedError(LoaderError):
    """The loader was opened in another process, of which this one is a fork."""


class DeviceError(InfeedError, RuntimeError):
    """A device cannot be opened, has no memory left, or failed."""


class ThreadError(InfeedError, OSError):
    """Threads could not be started."""


class PanickedError(InfeedError, RuntimeError):
    """A defect of infeed itself; please report it."""
