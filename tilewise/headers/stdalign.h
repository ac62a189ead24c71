// C++ has alignas and alignof.
