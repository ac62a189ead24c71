#ifndef TILEWISE_STDIO_H
#define TILEWISE_STDIO_H
// NVRTC knows printf.
typedef struct tilewise_file FILE;
#endif
