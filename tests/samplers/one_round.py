"""A round without replacement by itself."""

from locore.kernel.samplers.abreast import abreast
from locore.kernel.samplers.swor import Round, walk


def one_round(*args, **options) -> Round:
    """As `walk`."""
    (done,) = abreast([walk(*args, **options)])
    return done
