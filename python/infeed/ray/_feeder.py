"""What runs on a machine of the cluster: an actor that feeds whoever asks for it."""

import asyncio
import contextlib
import logging
import os
import secrets

import ray

from infeed import _core
from infeed._functions import named_by

# Pipelines at a time that one feeder serves; of more, those go that feed nobody.
_MOST = 8

# How long a question waits whose answer is known. Those of a trainer that is gone are
# held for no longer.
_KNOWN_S = 30.0

# How often messages of the engine are handed to the log.
_LOG_S = 1.0


class Feeder:
    """A feeder: makes batches of the pipelines that trainers bring, through Ray alone.

    Over infeed's own connections nothing comes but names of batches.
    """

    def __init__(self, number: int, threads: int, memory: int | None):
        self._name = f"infeed feeder {number}"
        self._threads, self._memory = threads, memory
        # Ray is who this is told to, so whoever may ask Ray may have batches.
        self._token = secrets.token_hex(32)
        # By description and folder, those last that were asked for last.
        self._served: dict[tuple[str, str], _core.Feeder] = {}
        self._serving = asyncio.Lock()
        self._telling: asyncio.Task[None] | None = None
        # To the files that Ray keeps of each process.
        logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")
        logging.getLogger("infeed").setLevel(logging.INFO)

    async def where(
        self, description: str, folder: str, known: str | None
    ) -> tuple[str, str, str]:
        """Feeds a pipeline from now on.

        Args:
            description: The pipeline, as JSON.
            folder: What its relative paths are relative to.
            known: The address that was given before; None at first.

        Returns:
            The address, the token of whoever asks there, and this machine's number in
            Ray. Where the address is known, after a while, so that who waits for this
            learns that the feeder is gone.
        """
        if self._telling is None:
            self._telling = asyncio.create_task(self._tell())
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
        # A folder of that trainer alone: then paths mean this process's.
        with contextlib.suppress(OSError):
            os.chdir(folder)
        address = ray.util.get_node_ip_address()
        listen = f"[{address}]:0" if ":" in address else f"{address}:0"
        return _core.Feeder(
            description,
            named_by(description),
            listen,
            self._token,
            self._threads,
            self._memory,
        )

    async def _tell(self) -> None:
        while True:
            for feeder in list(self._served.values()):
                feeder.stats()
            await asyncio.sleep(_LOG_S)

    def __repr__(self) -> str:
        return self._name
