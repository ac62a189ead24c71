// C++ has bool, true and false.
