"""Numbers in text for people: a minus sign, powers of ten and thousands separators, written in one way."""

import re

_OPTION = re.compile(r"(--[a-z][\w-]*(?:[ =]-?\d[\d.e+-]*)*)")
_EXPONENT = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)e([-−+])0*(\d+)\b")
_HYPHEN = re.compile(r"(?<![\w.)-])-(?=\.?\d)")
_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def number(value: float, spec: str = ".3g") -> str:
    """A number as it is shown to people, with a minus sign and a power of ten: `−0.25`, `3.2×10⁻⁷`.

    Three digits before the point are written out where `g` would take a power: `100`, not `1e+02`.

    Args:
        value: The number.
        spec: Format, as for `format`.
    """
    shown = format(float(value), spec)
    return typeset(f"{float(shown):.0f}" if spec.endswith("g") and shown.endswith("e+02") else shown)


def typeset(text: str) -> str:
    """Write the numbers of a text for people: `-0.25` becomes `−0.25`, `3.2e-07` becomes `3.2×10⁻⁷`.

    Options keep their values as they are typed: `--lr 1e-06`.
    """
    parts = _OPTION.split(text)
    parts[::2] = (_HYPHEN.sub("−", _EXPONENT.sub(_power, part)) for part in parts[::2])
    return "".join(parts)


def typeset_fields(shown: object, *names: str) -> None:
    """Typeset a dataclass's texts and tuples of texts, when it is created: it may be frozen."""
    for name in names:
        value = getattr(shown, name)
        object.__setattr__(shown, name, typeset(value) if isinstance(value, str) else tuple(map(typeset, value)))


def _power(found: re.Match[str]) -> str:
    digits, sign, exponent = found.groups()
    if float(digits) == 0 or exponent == "0":
        return digits
    power = f"10{'' if sign == '+' else '⁻'}{exponent.translate(_RAISED)}"
    return power if digits == "1" else f"{digits}×{power}"


def duration(seconds: float) -> str:
    """Format a duration with at most two units: `45 s`, `3 min 20 s`, `2 h 5 min`."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds // 60:.0f} min {seconds % 60:.0f} s"
    return f"{seconds // 3600:.0f} h {seconds % 3600 // 60:.0f} min"
