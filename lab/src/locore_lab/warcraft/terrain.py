"""Terrain maps drawn by a fixed procedure, in the likeness of the Warcraft maps of Vlastelica et al. (2020).

The original images are made of a game's tiles and cannot be given away. These have the same five terrains with the same
weights, tiles of 8 × 8 pixels with about the same mean colours, and patches that lie as in the original: forest fills a
corner or a side, grass borders it, the rest is earth, with lakes and outcrops of rock inside.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from locore.kernel.errors import InvalidArgument

TERRAINS = ("grass", "earth", "forest", "water", "rock")
GRASS, EARTH, FOREST, WATER, ROCK = range(5)
WEIGHTS = (0.8, 1.2, 5.3, 7.7, 9.2)
# Mean colours of the tiles in a published figure of the original data.
MEAN_RGB = ((41, 82, 10), (105, 63, 3), (18, 77, 8), (10, 49, 94), (75, 75, 75))
TILE = 8  # pixels
VARIANTS = 8  # tiles of each terrain and shade
SPLITS = ("train", "val", "test")

Terrain = NDArray[np.uint8]
_Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Recipe:
    """How much there is of what; each map draws its own shares uniformly between the two numbers."""

    forest: tuple[float, float] = (0.1, 0.5)  # share of all cells that are forest
    grass: tuple[float, float] = (0.1, 0.3)  # share of all cells that are grass, around the forest
    water: tuple[float, float] = (0.02, 0.25)  # share of the inner earth (no grass or forest next to it) that is water
    rock: tuple[float, float] = (0.02, 0.25)  # share of the inner earth that is rock
    forest_scale: float = 2.8  # width of the forest's patches, in cells
    lake_scale: float = 1.3  # width of lakes and outcrops, in cells
    tilt: float = 1.0  # how strongly the forest keeps to one side, against the noise of its border


STANDARD = Recipe()


def draw_terrain(rng: np.random.Generator, height: int, width: int, recipe: Recipe = STANDARD) -> Terrain:
    """A map of terrain indices.

    Returns:
        uint8[height, width], indices into `TERRAINS`.
    """
    if min(height, width) < 2:
        raise InvalidArgument(f"A map of {height} × {width} cells has no path to look for; give at least 2 × 2.")
    angle = rng.uniform(0, 2 * np.pi)
    rows, columns = np.linspace(-1, 1, height)[:, None], np.linspace(-1, 1, width)
    slope = np.sin(angle) * rows + np.cos(angle) * columns
    field = _smooth_noise(rng, height, width, recipe.forest_scale) + recipe.tilt * slope
    forest, grass = rng.uniform(*recipe.forest), rng.uniform(*recipe.grass)
    terrain = np.full((height, width), EARTH, dtype=np.uint8)
    terrain[field > np.quantile(field, 1 - forest - grass)] = GRASS
    terrain[field > np.quantile(field, 1 - forest)] = FOREST
    lakes = _smooth_noise(rng, height, width, recipe.lake_scale)
    inner = _inner_earth(terrain)
    water, rock = rng.uniform(*recipe.water), rng.uniform(*recipe.rock)
    if inner.any():
        # The two ends of one field: lakes and outcrops are patches that keep apart.
        terrain[inner & (lakes > np.quantile(lakes[inner], 1 - water))] = WATER
        terrain[inner & (lakes < np.quantile(lakes[inner], rock))] = ROCK
    return terrain


def draw_tiles(seed: int) -> NDArray[np.uint8]:
    """Tiles of every terrain in two shades.

    Returns:
        uint8[5, 2, VARIANTS, TILE, TILE, 3]: terrain, shade (normal, dark), variant, rows, columns, RGB.
    """
    rng = np.random.default_rng([seed, 7])
    tiles = np.zeros((5, 2, VARIANTS, TILE, TILE, 3))
    for terrain, colour in enumerate(MEAN_RGB):
        for variant in range(VARIANTS):
            pattern = _pattern(rng, terrain)
            grain = rng.normal(0, 6, (TILE, TILE, 1)) + rng.normal(0, 3, (TILE, TILE, 3))
            for shade, light in enumerate((1.05, 0.75 if terrain in (GRASS, EARTH) else 0.9)):
                tiles[terrain, shade, variant] = np.array(colour) * (light * (1 + pattern[..., None])) + grain
    return tiles.clip(0, 255).round().astype(np.uint8)


def render(terrain: Terrain, rng: np.random.Generator, tiles: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The picture of a map.

    Returns:
        uint8[TILE · height, TILE · width, 3].
    """
    height, width = terrain.shape
    dark = (_smooth_noise(rng, height, width, 1.2) > 0.6).astype(np.int64)
    variant = rng.integers(0, VARIANTS, terrain.shape)
    picture = tiles[terrain, dark, variant]
    return picture.transpose(0, 2, 1, 3, 4).reshape(TILE * height, TILE * width, 3)


def draw_maps(
    num: int, seed: int, split: str = "train", height: int = 12, width: int = 12, recipe: Recipe = STANDARD
) -> tuple[NDArray[np.uint8], _Floats]:
    """Maps and their weights; the first of many are those of few.

    Returns:
        images uint8[num, TILE · height, TILE · width, 3] and vertex weights f64[num, height, width].
    """
    if num < 1:
        raise InvalidArgument(f"num is {num}; give at least 1 map.")
    if split not in SPLITS:
        raise InvalidArgument(f"There is no split {split!r}; the splits are {', '.join(SPLITS)}.")
    tiles = draw_tiles(seed)
    images = np.empty((num, TILE * height, TILE * width, 3), dtype=np.uint8)
    weights = np.empty((num, height, width))
    for index in range(num):
        rng = np.random.default_rng([seed, SPLITS.index(split), index])
        terrain = draw_terrain(rng, height, width, recipe)
        images[index] = render(terrain, rng, tiles)
        weights[index] = np.array(WEIGHTS)[terrain]
    return images, weights


def _smooth_noise(rng: np.random.Generator, height: int, width: int, scale: float) -> _Floats:
    """f64[height, width] of about unit variance: white noise, blurred by a Gaussian of this width in cells."""
    margin = int(np.ceil(3 * scale))
    noise = rng.normal(size=(height + 2 * margin, width + 2 * margin))
    distance = np.arange(-margin, margin + 1)
    kernel = np.exp(-0.5 * (distance / scale) ** 2)
    kernel /= np.linalg.norm(kernel)  # keeps the variance of each cell
    along_rows = np.lib.stride_tricks.sliding_window_view(noise, 2 * margin + 1, axis=0) @ kernel
    return np.asarray(np.lib.stride_tricks.sliding_window_view(along_rows, 2 * margin + 1, axis=1) @ kernel)


def _inner_earth(terrain: Terrain) -> NDArray[np.bool_]:
    """Bool[height, width]: earth with nothing but earth, or the edge of the map, next to it."""
    other = np.pad(terrain != EARTH, 1)
    windows = np.lib.stride_tricks.sliding_window_view(other, (3, 3))
    return np.asarray(~windows.any((2, 3)))


def _pattern(rng: np.random.Generator, terrain: int) -> _Floats:
    """f64[TILE, TILE], relative brightness with mean near 0: tree crowns, waves, cracks, tufts or clods."""
    rows, columns = np.mgrid[0:TILE, 0:TILE]
    pattern = np.zeros((TILE, TILE))
    if terrain == FOREST:
        for _ in range(3):
            row, column = rng.uniform(0, TILE, 2)
            distance = np.hypot(rows - row, columns - column)
            pattern += np.where(distance < 1.6, 0.35, 0) - np.where((distance >= 1.6) & (distance < 2.8), 0.35, 0)
    elif terrain == WATER:
        pattern = 0.18 * np.sin(2 * np.pi * (rows / 4 + 0.25 * np.sin(2 * np.pi * columns / TILE) + rng.uniform()))
    elif terrain == ROCK:
        crack = np.abs(rng.normal(0, 0.6) * (columns - rng.uniform(2, 6)) - (rows - rng.uniform(2, 6)))
        pattern = np.where(crack < 0.8, -0.45, 0.1) + 0.12 * rng.normal(size=(TILE, TILE))
    else:
        specks = rng.random((TILE, TILE)) < (0.15 if terrain == GRASS else 0.1)
        pattern = np.where(specks, rng.choice([-0.3, 0.3], (TILE, TILE)), 0.0)
    return np.asarray(pattern - pattern.mean())
