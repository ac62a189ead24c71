// A header of the host's: of what it declares, device code uses nothing.
