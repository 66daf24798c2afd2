// Ternary weights of BitNet: {-1, 0, 1} times one number, in 2 bits, for activations with one scale
// per token.
#pragma once
#include <string>

#include "base/result.h"
#include "model/load/file_matrix.h"

namespace penstock {

// Rounds master weights in `matrix` to {-1, 0, 1} times their mean magnitude. where: the file, for
// messages. Error: kCorruptFile for a number that is not finite.
Status make_ternary(const std::string& where, FileMatrix& matrix);

// Unpacks the codes of matrix.tensor, of which 0 means -1. Byte (r, c) holds rows r, r + rows / 4,
// ... from its lowest bits up.
void unpack_codes(int rows, int cols, float scale, FileMatrix& matrix);

}  // namespace penstock
