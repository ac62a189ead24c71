#ifndef TILEWISE_STDLIB_H
#define TILEWISE_STDLIB_H
// NVRTC knows malloc, free and abs.
#include "sys/types.h"
#define EXIT_SUCCESS 0
#define EXIT_FAILURE 1
#define RAND_MAX 2147483647
#endif
