"""cuda-samples (github.com/NVIDIA/cuda-samples): kernels without textures, surfaces, libraries."""

from __future__ import annotations

from projects.cuda_samples.concepts import CONCEPTS
from projects.cuda_samples.graphs import GRAPHS
from projects.cuda_samples.images import IMAGES
from projects.cuda_samples.introduction import INTRODUCTION
from projects.cuda_samples.networks import NETWORKS
from projects.cuda_samples.performance import PERFORMANCE
from projects.cuda_samples.reductions import REDUCTIONS

CASES = (*INTRODUCTION, *REDUCTIONS, *NETWORKS, *IMAGES, *GRAPHS, *CONCEPTS, *PERFORMANCE)
"""Of 0_Introduction, 2_Concepts_and_Techniques and 6_Performance."""
