"""How the deep profile checks calls: by beartype, where a whole number may stand for a real one."""

from beartype import BeartypeConf, beartype

checked = beartype(conf=BeartypeConf(is_pep484_tower=True))
