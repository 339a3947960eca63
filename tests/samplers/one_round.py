"""A round without replacement by itself."""

from locore.samplers.abreast import abreast
from locore.samplers.swor import Round, walk


def one_round(*args, **options) -> Round:
    """As `walk`."""
    (done,) = abreast([walk(*args, **options)])
    return done
