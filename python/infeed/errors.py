"""Exceptions, one for each variant of the engine's error.

Each is an `InfeedError` and also a built-in exception, so that ``except ValueError``
and ``except OSError`` work. Messages about data name the record. Messages about
settings name the argument and the fix.
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
    "TooManyBadRecordsError",
    "TransformError",
    "WriteError",
]


class InfeedError(Exception):
    """Base of every error that infeed raises."""


class ConfigError(InfeedError, ValueError):
    """The description of a pipeline or an argument is invalid."""


class BudgetError(ConfigError):
    """Too little memory for two batches and the work that makes them.

    The budget is too small; or none is set, and other loaders or programs leave too
    little. The message then lists the processes whose loaders have reserved memory.
    """


class OpenError(InfeedError, OSError):
    """A dataset cannot be opened or listed."""


class WriteError(InfeedError, OSError):
    """A file of a packed dataset, or a recording, cannot be written.

    Complete files of a dataset stay. The same call continues from there.
    """


class InterruptedPackError(InfeedError):
    """``progress`` returned False. The same call continues from there."""


class ReadError(InfeedError, OSError):
    """The bytes of a record cannot be read, even after retries.

    The storage failed and not the data, so the run stops with any ``on_error``.
    """


class DamagedError(InfeedError, ValueError):
    """A record is damaged or incomplete.

    Its bytes are damaged, a file that a list names is missing, its annotations are for
    an image of another size, or a Python object raised for its item.
    """


class DecodeError(InfeedError, ValueError):
    """The bytes of a record cannot be decoded."""


class TransformError(InfeedError, ValueError):
    """A transform cannot be applied to a record."""


class ShapeError(InfeedError, ValueError):
    """A record does not have the shape that its batch needs."""


class FunctionError(InfeedError, RuntimeError):
    """A function of ``.python`` or ``.python_batch`` failed.

    The message names the record or the batch, and the exception of the function. The
    exception's notes hold the traceback, and Python prints them below the message.
    """


class ProcessError(InfeedError, OSError):
    """A worker process of ``.python(..., processes=N)`` cannot be started."""


class RecordTooLargeError(InfeedError, ValueError):
    """A record needs more memory than the loader may use for one record.

    The message proposes the value of ``memory=`` with which the record fits.
    """


class TooManyBadRecordsError(InfeedError, ValueError):
    """More records were bad than ``max_bad`` allows."""


class OutOfMemoryError(InfeedError, MemoryError):
    """The operating system has no memory left for a batch."""


class LoaderError(InfeedError, RuntimeError):
    """The loader is in a state that does not allow the call."""


class IteratorError(LoaderError):
    """Another loop iterates over the loader."""


class ClosedError(LoaderError):
    """The loader is closed."""


class ForkedError(LoaderError):
    """The loader was opened in the parent of this process, before the fork."""


class DeviceError(InfeedError, RuntimeError):
    """A device cannot be opened, is out of memory, or failed."""


class ThreadError(InfeedError, OSError):
    """A thread cannot be started."""


class PanickedError(InfeedError, RuntimeError):
    """infeed has a defect; please report it."""
