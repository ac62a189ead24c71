// NVRTC knows clock and clock_t.
