"""Let threads wait for each other: barriers of warps, blocks and clusters, and mbarriers."""
