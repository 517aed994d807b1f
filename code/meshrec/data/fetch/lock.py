"""sources.lock.json: hash and length of files that the table doesn't verify, as the first download had them."""

import json
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from meshrec.data.fetch.errors import FetchError
from meshrec.data.fetch.sources import Closed, Sha256
from meshrec.experiment.record import write_json


class Pin(Closed):
    """What a file was when it was first seen."""

    bytes: Annotated[int, Field(ge=0)]
    sha256: Sha256
    origin: str
    """Address that it came from, or archive that it was in."""


class _Content(Closed):
    schema_version: int = 1
    files: dict[str, Pin] = Field(default_factory=dict)


class Lock:
    """The pins in one file. A pin is never overwritten: a file that differs is refused, not believed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def get(self, key: str) -> Pin | None:
        """Pin of a file.

        Raises:
            FetchError: the lock file is damaged.
        """
        return self._read().files.get(key)

    def add(self, key: str, pin: Pin) -> None:
        """Write down a file that has no pin yet.

        Raises:
            FetchError: the lock file is damaged, or has another pin for this file.
        """
        content = self._read()
        if (known := content.files.get(key)) is not None:
            if (known.bytes, known.sha256) != (pin.bytes, pin.sha256):
                raise FetchError(f"{self.path}: {key} is recorded with sha256 {known.sha256}, found {pin.sha256}")
            return
        files = {**content.files, key: pin}
        write_json(self.path, _Content(files=dict(sorted(files.items()))).model_dump(mode="json"))

    def _read(self) -> _Content:
        try:
            return _Content.model_validate(json.loads(self.path.read_bytes()))
        except FileNotFoundError:
            return _Content()
        except (OSError, ValueError, ValidationError) as error:
            raise FetchError(f"{self.path}: can't be read: {error}; restore it, or delete it to trust anew") from None
