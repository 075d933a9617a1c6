"""What a claim of a paper is, the few ways to decide one, and the record of what full runs measured.

The decided claim itself, `Claim`, belongs to the store, which reads it back from a run folder.
"""

from understudy._numbers import number as number
from understudy.claims.decide import Claims as Claims
from understudy.claims.verdict import Verdict as Verdict
from understudy.claims.verdict import every as every
from understudy.claims.verdict import median as median
from understudy.claims.verdict import ordered as ordered
from understudy.claims.verdict import range_words as range_words
from understudy.claims.verdict import share as share
from understudy.claims.verdict import within as within
from understudy.store.claims import Claim as Claim
from understudy.store.claims import Variant as Variant
