#ifndef TILEWISE_IMPLICIT_H
#define TILEWISE_IMPLICIT_H
// What nvcc includes before every source, as far as NVRTC does not know it by itself.
#include "limits.h"
#include "math.h"
#include "stdlib.h"
#include "string.h"
#include "time.h"
#endif
