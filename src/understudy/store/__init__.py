"""The run folder: atomic, resumable, read back without the code that wrote it."""

from understudy.store.claims import Claim as Claim
from understudy.store.run import Run as Run
