"""Dependency graphs: which piece-wise hyperplane bends at which, and what that says about layers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int

from understudy._errors import UserError
from understudy.papers.equivalence.theory.surface import Segments, Surface


@dataclass(frozen=True, eq=False)
class DependencyGraph:
    """The dependency graph of a piece-wise linear surface (Phuong & Lampert 2020, sec. 2.4, fig. 2.4).

    Attributes:
        layers: Layer of each piece-wise hyperplane in the canonical representation.
        edges: Pairs (lower, upper): the upper piece-wise hyperplane ends inside the lower one.
        bends: Whether the upper one really bends there; otherwise the set of folds goes straight on across the lower
            one, and is divided there only because a lower layer was assigned to that.
        longest: Number of edges of the longest path that starts at each piece-wise hyperplane.
        longest_bending: Number of edges of the longest path of edges that bend.
    """

    layers: Int[np.ndarray, "piece"]
    edges: Int[np.ndarray, "edge 2"]
    bends: Bool[np.ndarray, "edge"]
    longest: Int[np.ndarray, "piece"]
    longest_bending: Int[np.ndarray, "piece"]

    def possible_layers(self, hidden_layers: int, bending: bool = True) -> Int[np.ndarray, "piece 2"]:
        """Least and largest hidden layer whose units may fold at each piece-wise hyperplane.

        By lemma 2.3 of Phuong & Lampert (2020) a piece-wise hyperplane of layer k from which a path of length m starts
        is a part of the zeros of a unit of layer l with k ≤ l ≤ λ − m. Where both are equal the layer is identified.
        The proof needs edges at which the upper piece-wise hyperplane bends. A straight fold of a unit of layer 2 is
        assigned to layer 1, and other folds of layer 2 that cross it are divided there without bending: with these
        edges the lemma does not hold.

        Args:
            hidden_layers: Number λ of hidden layers of the network.
            bending: Whether only paths of edges that bend are counted.

        Returns:
            k and λ − m for each.

        Raises:
            UserError: Fewer hidden layers than the surface has.
        """
        if len(self.layers) and hidden_layers < int(self.layers.max()):
            raise UserError(
                f"must be at least {int(self.layers.max())}, the order of the surface, got {hidden_layers}: no general "
                "transparent network of so few layers has these folds",
                "hidden_layers",
            )
        longest = self.longest_bending if bending else self.longest
        return np.stack([self.layers, hidden_layers - longest], axis=1)


def dependency_graph(folds: Segments, surface: Surface) -> DependencyGraph:
    """Find which piece-wise hyperplanes end in which.

    There is an edge from H to G if the layer of H is lower and the closure of G meets the relative interior of H. As G
    crosses a cell whose border contains H, they can only meet where G ends.

    Args:
        folds: The set of folds.
        surface: Its canonical representation.

    Returns:
        The graph.
    """
    # The piece-wise hyperplanes that pass through each vertex where others end.
    through: dict[int, set[int]] = {int(v): set() for v in surface.ends.ravel()}
    for ends, piece in zip(folds.ends.tolist(), surface.piece.tolist(), strict=True):
        for vertex in ends:
            if piece >= 0 and vertex in through and vertex not in surface.ends[piece]:
                through[vertex].add(piece)
    found: dict[tuple[int, int], bool] = {}
    for upper, ends in enumerate(surface.ends.tolist()):
        for vertex, straight in zip(ends, surface.continued[upper].tolist(), strict=True):
            for lower in through[vertex]:
                if surface.layers[lower] < surface.layers[upper]:
                    found[lower, upper] = found.get((lower, upper), False) or not straight
    edges = np.array(sorted(found), dtype=int).reshape(-1, 2)
    bends = np.array([found[lower, upper] for lower, upper in edges.tolist()], dtype=bool)
    longest = longest_paths(surface.layers, edges)
    return DependencyGraph(surface.layers, edges, bends, longest, longest_paths(surface.layers, edges[bends]))


def longest_paths(layers: Int[np.ndarray, "piece"], edges: Int[np.ndarray, "edge 2"]) -> Int[np.ndarray, "piece"]:
    """Number of edges of the longest path from each vertex of a graph whose edges lead to higher layers."""
    longest = np.zeros(len(layers), dtype=int)
    for lower, upper in edges[np.argsort(-layers[edges[:, 0]], kind="stable")]:
        longest[lower] = max(longest[lower], longest[upper] + 1)
    return longest
