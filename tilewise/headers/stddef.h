#ifndef TILEWISE_STDDEF_H
#define TILEWISE_STDDEF_H
// NVRTC knows size_t, ptrdiff_t and NULL.
#define offsetof(type, member) __builtin_offsetof(type, member)
#endif
