"""The actor of a feeder, which runs on a machine of the cluster."""

import asyncio
import contextlib
import logging
import os
import secrets

import ray

from infeed import _core
from infeed._functions import functions_named_by

# Pipelines that one feeder serves at a time. Above that, those without a session end.
_MOST = 8

# Seconds that a call waits if its answer is known. Calls of a trainer that has ended
# are held no longer than this.
_KNOWN_S = 30.0

# Seconds between transfers of the engine's messages to the log.
_LOG_S = 1.0


class Feeder:
    """A feeder: makes batches of the pipelines that trainers send through Ray.

    infeed's own connections only carry the numbers of batches, and batches.
    """

    def __init__(self, number: int, threads: int, memory: int | None):
        self._name = f"infeed feeder {number}"
        self._threads, self._memory = threads, memory
        # Only Ray passes the token on, so access to Ray gives access to batches.
        self._token = secrets.token_hex(32)
        # By description and folder, the most recently requested last.
        self._served: dict[tuple[str, str], _core.Feeder] = {}
        self._serving = asyncio.Lock()
        self._log_task: asyncio.Task[None] | None = None
        # Goes to the files that Ray keeps for each process.
        logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")
        logging.getLogger("infeed").setLevel(logging.INFO)

    async def serve(
        self, description: str, folder: str, known: str | None
    ) -> tuple[str, str, str]:
        """Serves a pipeline from now on.

        Args:
            description: The pipeline, as JSON.
            folder: Folder to which its relative paths are relative.
            known: Address that an earlier call returned; None at first.

        Returns:
            The address, its token, and this machine's ID in Ray. If the address is
            known, the call returns after a while. So a caller that waits for it learns
            when the feeder ends.
        """
        if self._log_task is None:
            self._log_task = asyncio.create_task(self._pass_on_messages())
        async with self._serving:
            key = (description, folder)
            feeder = self._served.pop(key, None)
            if feeder is None:
                feeder = await asyncio.to_thread(self._serve, description, folder)
            self._served[key] = feeder
        if feeder.address == known:
            await asyncio.sleep(_KNOWN_S)
        node = ray.get_runtime_context().get_node_id()
        return feeder.address, self._token, node

    def _serve(self, description: str, folder: str) -> _core.Feeder:
        for key, feeder in list(self._served.items()):
            if len(self._served) < _MOST:
                break
            stats = feeder.stats()
            if stats is None or stats["sessions"] == 0:
                self._served.pop(key).close()
        # If this machine has no such folder, paths are relative to the process's own.
        with contextlib.suppress(OSError):
            os.chdir(folder)
        address = ray.util.get_node_ip_address()
        listen = f"[{address}]:0" if ":" in address else f"{address}:0"
        return _core.Feeder(
            description,
            functions_named_by(description),
            listen,
            self._token,
            self._threads,
            self._memory,
        )

    async def _pass_on_messages(self) -> None:
        while True:
            for feeder in list(self._served.values()):
                feeder.stats()
            await asyncio.sleep(_LOG_S)

    def __repr__(self) -> str:
        return self._name
