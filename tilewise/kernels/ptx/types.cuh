// Short names of the unsigned types. NVRTC has no <cstdint> without CUDA's headers.
#pragma once

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
