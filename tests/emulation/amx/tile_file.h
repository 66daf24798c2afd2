// AMX's tiles in software: what each instruction of tiles.h does, to the bit as Intel's manual has
// it, with the AVX-512 of the machine. For tests of the kernels where the processor has no tiles;
// not in the shipped program.
//
// As strict as the processor: what that faults on ends the program with the instruction's name.
// State is the thread's. tiles.h is compiled against this file where it was included before.
#pragma once
#include <cstddef>

#define PENSTOCK_EMULATED_TILES 1

namespace penstock::tile_file {

void configure(const void* config);  // 64 bytes; all tiles become zero
void release();
void zero(int tile);
void load(int tile, const void* p, ptrdiff_t stride);
void store(int tile, void* p, ptrdiff_t stride);
// c += a b.
void dot_bf16(int c, int a, int b);             // tdpbf16ps
void dot_signed_unsigned(int c, int a, int b);  // tdpbsud
void dot_signed(int c, int a, int b);           // tdpbssd

}  // namespace penstock::tile_file
