// Included first by every kernel file: which instruction sets it is compiled for. SSSE3 and the
// finer kinds of AVX-512 bring these kernels nothing and cost compile time.
#pragma once

#include <hwy/detect_targets.h>

#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL)
