#ifndef TILEWISE_MEMORY_H
#define TILEWISE_MEMORY_H
#include "string.h"
#endif
