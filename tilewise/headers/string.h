// NVRTC knows memcpy and memset.
