#ifndef TILEWISE_WITHOUT_CUDA_H
#define TILEWISE_WITHOUT_CUDA_H
// For sources that include cuda.h where no CUDA headers are installed: the driver's type that kernels
// take. CUDA Driver API, "Tensor Map Object Management".
typedef struct CUtensorMap_st {
    alignas(128) unsigned long long opaque[16];
} CUtensorMap;
#endif
