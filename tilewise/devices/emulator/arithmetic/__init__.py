"""The functions of arithmetic instructions: exact functions of arrays, without a machine."""
