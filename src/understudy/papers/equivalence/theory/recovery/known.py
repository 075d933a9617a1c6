"""Layers recovered until now, and the affine pieces of their units."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from jaxtyping import Float


class AffinePiece(NamedTuple):
    """What the layers compute on one of their cells, at one point.

    Attributes:
        features: Values φ in which preactivations of the next layer are linear.
        jacobian: Derivatives of φ with respect to the inputs.
        values: Preactivations of all units of the layers, from the first layer up.
        gradients: Their derivatives.
    """

    features: Float[np.ndarray, "feature"]
    jacobian: Float[np.ndarray, "feature in"]
    values: Float[np.ndarray, "unit"]
    gradients: Float[np.ndarray, "unit in"]


@dataclass(eq=False)
class KnownLayers:
    """Recovered layers; which side is active is known for all units but some of the last layer.

    The features are ρ(u_k) for units u_k of the last layer whose active side is known, |u_k| and u_k for the others,
    and 1: whichever side is active, a preactivation of the next layer is linear in them, since
    ρ(±u) = (1 − slope)/2 · |u| ± (1 + slope)/2 · u.

    Attributes:
        inputs: Number of inputs.
        weights: Matrices of the layers.
        biases: Their biases.
        oriented: Whether the active side is known, for every unit of the last layer.
        slope: Slope of the activation below zero.
    """

    inputs: int
    weights: list[np.ndarray] = field(default_factory=list)
    biases: list[np.ndarray] = field(default_factory=list)
    oriented: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))
    slope: float = 0.0

    def activate(self, u: np.ndarray) -> np.ndarray:
        """ρ(u), element by element."""
        found: np.ndarray = np.maximum(u, self.slope * u)
        return found

    def below(self) -> KnownLayers:
        """All layers but the last, with their active sides."""
        biases = self.biases[:-1]
        oriented = np.ones(len(biases[-1]) if biases else 0, bool)
        return KnownLayers(self.inputs, self.weights[:-1], biases, oriented, self.slope)

    def largest(self) -> np.ndarray:
        """Bounds of the activations' absolute values in the last layer, over the cube."""
        size = np.ones(self.inputs)
        for weight, bias in zip(self.weights, self.biases, strict=True):
            size = np.abs(weight) @ size + np.abs(bias)
        return size

    def values(self, z: Float[np.ndarray, "sample in"]) -> Float[np.ndarray, "sample unit"]:
        """Preactivations of all units."""
        found, h = [np.zeros((len(z), 0))], z
        for weight, bias in zip(self.weights, self.biases, strict=True):
            u = h @ weight.T + bias
            found.append(u)
            h = self.activate(u)
        return np.concatenate(found, axis=1)

    def features(self, z: Float[np.ndarray, "sample in"]) -> Float[np.ndarray, "sample feature"]:
        """Features of points."""
        one = np.ones((len(z), 1))
        if not self.weights:
            return np.concatenate([z, one], axis=1)
        values = self.values(z)
        u = values[:, values.shape[1] - len(self.biases[-1]) :]
        first = np.where(self.oriented, self.activate(u), np.abs(u))
        return np.concatenate([first, u[:, ~self.oriented], one], axis=1)

    def pattern(self, z: Float[np.ndarray, "in"]) -> np.ndarray:
        """Side of each unit on which a point is: 1 or −1."""
        found: np.ndarray = np.where(self.values(z[None])[0] > 0, 1.0, -1.0)
        return found

    def piece(self, z: Float[np.ndarray, "in"], pattern: np.ndarray) -> AffinePiece:
        """Affine functions that the units are on the cell of a pattern, at a point of it or of its boundary."""
        h, jacobian = z, np.eye(self.inputs)
        values, gradients, at = [np.zeros(0)], [np.zeros((0, self.inputs))], 0
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            u, g = weight @ h + bias, weight @ jacobian
            side = pattern[at : at + len(u)]
            at += len(u)
            values.append(u)
            gradients.append(g)
            factor = np.where(side > 0, 1.0, self.slope)
            if i == len(self.weights) - 1:
                factor = np.where(self.oriented, factor, side)
                other = ~self.oriented
                h, jacobian = np.r_[factor * u, u[other]], np.concatenate([factor[:, None] * g, g[other]])
            else:
                h, jacobian = factor * u, factor[:, None] * g
        jacobian = np.concatenate([jacobian, np.zeros((1, self.inputs))])
        return AffinePiece(np.r_[h, 1.0], jacobian, np.concatenate(values), np.concatenate(gradients))

    def orient(self, units: np.ndarray, signs: np.ndarray) -> None:
        """Turn rows of the last layer so that their active side is the positive one."""
        self.weights[-1][units] *= signs[:, None]
        self.biases[-1][units] *= signs
        self.oriented[units] = True

    def nearest(self, z: Float[np.ndarray, "sample in"]) -> np.ndarray:
        """Distance from each point to the nearest fold of a unit, to first order; infinite without layers."""
        found = np.full(len(z), np.inf)
        if self.weights:
            for i, point in enumerate(z):
                piece = self.piece(point, self.pattern(point))
                slope = np.linalg.norm(piece.gradients, axis=1)
                with np.errstate(divide="ignore", invalid="ignore"):
                    found[i] = np.nanmin(np.where(slope > 0, np.abs(piece.values) / slope, np.inf))
        return found
