"""What can go wrong with a download. Every message names the file or address and says what to do."""

from meshrec.data.columns import DataError


class FetchError(DataError):
    """A data set that can't be had now."""


class AddressError(FetchError):
    """One address doesn't give the file, and asking it again won't help: the next one is tried."""


class BrokenOff(FetchError):
    """A download that ended early: what has arrived is kept, and the same address is asked for the rest."""


class CorruptError(AddressError):
    """All bytes arrived, but they aren't the file's."""
