"""The papers that understudy reproduces, one folder each.

Every folder has the same plan: `theory/` holds its theorems and closed forms, `<study>/` a study that reproduces
figures and decides claims (`study.py`, `claims.py`, `story.py`), `shared.py` what its studies have in common.
"""
