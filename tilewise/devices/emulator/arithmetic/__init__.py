"""What arithmetic instructions compute: exact functions of arrays, with no machine."""
