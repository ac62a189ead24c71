// CUTLASS's GEMM for the tensor cores of compute capability 8.0, behind C functions.
//
// benchmarks/cutlass_sm80.py builds it, one library for each of these:
//   ELEMENT            cutlass::bfloat16_t or cutlass::half_t: of A, B and D; sums are in float
//   LAYOUT_A, LAYOUT_B RowMajor or ColumnMajor; D is RowMajor
// Rows, or columns, of all three must be a multiple of 8 elements apart.

#include "cutlass/gemm/device/gemm_universal.h"

namespace {

using cutlass::gemm::GemmCoord;
using cutlass::gemm::GemmShape;
namespace layout = cutlass::layout;

// As many columns of tiles are computed together as the caller says, at run time.
struct Swizzle : cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<1> {
  inline static int columns = 1;  // a power of 2

  CUTLASS_HOST_DEVICE
  Swizzle() {}

  CUTLASS_HOST_DEVICE
  static int get_log_tile(GemmCoord tiles) {
    int log = 0;
#ifndef __CUDA_ARCH__  // it is asked on the host alone; kernels are given what it said
    while ((2 << log) <= columns && (1 << log) < tiles.n()) ++log;
#endif
    return log;
  }

  CUTLASS_HOST_DEVICE
  static dim3 get_grid_shape(GemmCoord tiles) {
    const int width = 1 << get_log_tile(tiles);
    return dim3(tiles.m() * width, (tiles.n() + width - 1) / width, tiles.k());
  }
};

struct Problem {
  int m, n, k;
  const void* a;
  int64_t lda;
  const void* b;
  int64_t ldb;
  void* d;
  int64_t ldd;
  cudaStream_t stream;
};

template <int BLOCK_M, int BLOCK_N, int BLOCK_K, int WARP_M, int WARP_N, int STAGES>
int product(const Problem& x) {
  using Gemm = cutlass::gemm::device::GemmUniversal<
      ELEMENT, layout::LAYOUT_A, ELEMENT, layout::LAYOUT_B, ELEMENT, layout::RowMajor, float,
      cutlass::arch::OpClassTensorOp, cutlass::arch::Sm80, GemmShape<BLOCK_M, BLOCK_N, BLOCK_K>,
      GemmShape<WARP_M, WARP_N, BLOCK_K>, GemmShape<16, 8, 16>,
      cutlass::epilogue::thread::LinearCombination<ELEMENT, 8, float, float>, Swizzle, STAGES, 8, 8>;
  const typename Gemm::Arguments arguments(
      cutlass::gemm::GemmUniversalMode::kGemm, {x.m, x.n, x.k}, 1, {1.0f, 0.0f}, x.a, x.b, x.d, x.d,
      int64_t(0), int64_t(0), int64_t(0), int64_t(0), x.lda, x.ldb, x.ldd, x.ldd);
  cutlass::Status status = Gemm::can_implement(arguments);
  if (status != cutlass::Status::kSuccess) return int(status);
  Gemm gemm;
  status = gemm.initialize(arguments, nullptr, x.stream);
  if (status != cutlass::Status::kSuccess) return int(status);
  return int(gemm.run(x.stream));
}

struct Tiling {
  const char* name;
  int (*product)(const Problem&);
};

#define TILING(m, n, k, warp_m, warp_n, stages) \
  {#m "x" #n "x" #k " of " #warp_m "x" #warp_n ", " #stages " stages", \
   product<m, n, k, warp_m, warp_n, stages>}

const Tiling tilings[] = {
    TILING(128, 256, 32, 64, 64, 3), TILING(128, 256, 32, 64, 64, 4),
    TILING(128, 256, 64, 64, 64, 3), TILING(128, 256, 64, 64, 64, 4),
    TILING(256, 128, 32, 64, 64, 3), TILING(256, 128, 32, 64, 64, 4),
    TILING(256, 128, 64, 64, 64, 3), TILING(256, 128, 64, 64, 64, 4),
    TILING(128, 128, 32, 64, 64, 3), TILING(128, 128, 32, 64, 64, 4),
    TILING(128, 128, 32, 64, 64, 5), TILING(128, 128, 64, 64, 64, 3),
    TILING(128, 128, 64, 64, 64, 4), TILING(128, 64, 64, 64, 32, 3),
    TILING(64, 128, 64, 32, 64, 3),  TILING(64, 64, 64, 32, 32, 5),
};

}  // namespace

extern "C" int cutlass_tilings() { return sizeof(tilings) / sizeof(Tiling); }

extern "C" const char* cutlass_tiling(int index) { return tilings[index].name; }

// Returns 0, or else CUTLASS's status.
extern "C" int cutlass_product(int index, int swizzle, int m, int n, int k, const void* a,
                               int64_t lda, const void* b, int64_t ldb, void* d, int64_t ldd,
                               void* stream) {
  Swizzle::columns = swizzle;
  return tilings[index].product({m, n, k, a, lda, b, ldb, d, ldd, cudaStream_t(stream)});
}
