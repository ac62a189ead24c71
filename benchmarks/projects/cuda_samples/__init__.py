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

LEFT_OUT = {
    "0_Introduction/simpleCubemapTexture": "texture",
    "0_Introduction/simpleLayeredTexture": "texture",
    "0_Introduction/simplePitchLinearTexture": "texture",
    "0_Introduction/simpleSurfaceWrite": "surface",
    "0_Introduction/simpleTexture": "texture",
    "0_Introduction/simpleTexture3D": "texture",
    "0_Introduction/simpleTextureDrv": "texture",
    "0_Introduction/simpleCUDA2GL": "OpenGL",
    "2_Concepts_and_Techniques/EGLStream_CUDA_CrossGPU": "EGL",
    "2_Concepts_and_Techniques/FunctionPointers": "texture",
    "2_Concepts_and_Techniques/convolutionTexture": "texture",
    "2_Concepts_and_Techniques/imageDenoising": "texture",
    "2_Concepts_and_Techniques/boxFilter": "texture: three of its six kernels",
    "2_Concepts_and_Techniques/dct8x8": "texture: the first DCT and its inverse",
    "2_Concepts_and_Techniques/MC_EstimatePiInlineP": "cuRAND",
    "2_Concepts_and_Techniques/MC_EstimatePiInlineQ": "cuRAND",
    "2_Concepts_and_Techniques/MC_SingleAsianOptionP": "cuRAND: two of its three kernels",
    "2_Concepts_and_Techniques/radixSortThrust": "Thrust alone",
    "2_Concepts_and_Techniques/streamOrderedAllocationIPC": "simpleIPC's kernel again",
}
"""Samples, or some of a sample's kernels, that are left out, and what they need."""
