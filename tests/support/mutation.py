"""Damage to the bytes of a file: cut, flipped bits, overwritten, duplicated and exchanged pieces."""

import random


def damage(content: bytes, draw: random.Random) -> bytes:
    """Another content, of which one or two places are damaged; mostly near both ends, where headers are."""
    found = bytearray(content)
    for _ in range(draw.randint(1, 2)):
        near = min(len(found) - 1, draw.randint(0, 400))
        at = draw.choice((near, len(found) - 1 - near, draw.randrange(len(found))))
        length = min(draw.choice((1, 4, 16, 256)), len(found) - at)
        match draw.randrange(6):
            case 0:
                del found[max(1, at) :]
            case 1:
                found[at] ^= 1 << draw.randrange(8)
            case 2:
                found[at : at + length] = draw.randbytes(length)
            case 3:
                found[at:at] = found[at : at + length]
            case 4:
                other = draw.randrange(len(found) - length + 1)
                found[at : at + length] = found[other : other + length]
            case 5:
                found[at : at + length] = draw.choice((b"\xff", b"\x00", b"9", b"[")) * length
    return bytes(found)
