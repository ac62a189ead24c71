#ifndef TILEWISE_SYS_TYPES_H
#define TILEWISE_SYS_TYPES_H
typedef signed char int8_t;
typedef signed short int16_t;
typedef signed int int32_t;
typedef signed long long int64_t;
typedef signed long long ssize_t;
#ifndef _WIN32
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
#endif
#endif
