// The order of the Hopper kernels' tiles.
//
// Macro: GROUP_M, rows of tiles that run together.
#pragma once

#ifndef GROUP_M
#define GROUP_M 16
#endif

// The coordinates of a cluster's tile number ``index``. Tiles go by groups of GROUP_M rows of tiles,
// down a column within a group, so that blocks that run at the same time share A and B in L2.
struct Tile {
    int row, column, batch;
    __device__ Tile(int index, int rows, int columns) {
        int of_batch = rows * columns;
        batch = index / of_batch;
        index -= batch * of_batch;
        int group = index / (GROUP_M * columns), first = group * GROUP_M;
        int height = min(rows - first, GROUP_M);
        index -= group * GROUP_M * columns;
        row = first + index % height;
        column = index / height;
    }
};
