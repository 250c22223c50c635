"""Context managers that close at the end of `with`."""

from types import TracebackType
from typing import Self


class ClosedAtExit:
    """An object with `close`, which `with` calls at its end."""

    def close(self) -> None:
        """Releases the object's resources."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
