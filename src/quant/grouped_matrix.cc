#include "quant/grouped_matrix.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "quant/codebook.h"

namespace penstock {

namespace {

uint32_t word_at(std::span<const std::byte> bytes, int64_t index) {
  uint32_t word = 0;
  std::memcpy(&word, bytes.data() + index * 4, 4);
  return word;
}

// Writes the codes of inputs [0, cols) of one row, in file order.
void row_codes(const GroupedMatrix& m, int row, uint8_t* out) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(m.packed.data());
  const auto mask = static_cast<uint8_t>((1 << m.bits) - 1);
  const int64_t first = static_cast<int64_t>(row) * m.cols;
  switch (m.layout) {
    case CodeLayout::kBytes: std::memcpy(out, bytes + first, static_cast<size_t>(m.cols)); break;
    case CodeLayout::kSignedBytes:
      for (int j = 0; j < m.cols; ++j) out[j] = bytes[first + j] ^ 0x80;
      break;
    case CodeLayout::kNibblesLowFirst:
      for (int j = 0; j < m.cols; ++j) out[j] = (bytes[first / 2 + j / 2] >> (j % 2 * 4)) & 0x0f;
      break;
    case CodeLayout::kNibblesHighFirst:
      for (int64_t j = first; j < first + m.cols; ++j)
        *out++ = (bytes[j / 2] >> (4 - j % 2 * 4)) & 0x0f;
      break;
    case CodeLayout::kWordsByRow: {
      const int per_word = 32 / m.bits;
      const int64_t first_word = static_cast<int64_t>(row) * ((m.cols + per_word - 1) / per_word);
      for (int j = 0; j < m.cols; ++j) {
        out[j] = static_cast<uint8_t>(word_at(m.packed, first_word + j / per_word) >>
                                      (j % per_word * m.bits)) &
                 mask;
      }
      break;
    }
    case CodeLayout::kStreamByColumn:
      for (int j = 0; j < m.cols; ++j) {
        const int64_t bit = static_cast<int64_t>(j) * m.bits;
        const int shift = static_cast<int>(bit % 32);
        uint64_t word = word_at(m.packed, bit / 32 * m.rows + row);
        if (shift + m.bits > 32)
          word |= static_cast<uint64_t>(word_at(m.packed, (bit / 32 + 1) * m.rows + row)) << 32;
        out[j] = static_cast<uint8_t>(word >> shift) & mask;
      }
      break;
    case CodeLayout::kAwq:
      for (int j = 0; j < m.cols; ++j) {
        const uint32_t word = word_at(m.packed, static_cast<int64_t>(j) * (m.rows / 8) + row / 8);
        out[j] = static_cast<uint8_t>(word >> kAwqShift[row % 8]) & 0x0f;
      }
      break;
    case CodeLayout::kCrumbsAcrossRows: {
      const int quarter = m.rows / 4;
      const int64_t first_byte = static_cast<int64_t>(row % quarter) * m.cols;
      for (int j = 0; j < m.cols; ++j) out[j] = (bytes[first_byte + j] >> (row / quarter * 2)) & 3;
      break;
    }
    case CodeLayout::kNvfp4Blocks: {
      const auto* blocks = reinterpret_cast<const quant::NVFP4::Block*>(bytes) + first / 64;
      for (int b = 0; b < m.cols / 64; ++b) quant::NVFP4::unpack(blocks[b], out + 64 * b);
      break;
    }
  }
}

}  // namespace

uint64_t GroupedMatrix::packed_bytes(CodeLayout layout, int64_t rows, int64_t cols, int bits) {
  switch (layout) {
    case CodeLayout::kBytes:
    case CodeLayout::kSignedBytes: return static_cast<uint64_t>(rows * cols);
    case CodeLayout::kNibblesLowFirst: return static_cast<uint64_t>(rows * (cols / 2));
    case CodeLayout::kNibblesHighFirst: return static_cast<uint64_t>((rows * cols + 1) / 2);
    case CodeLayout::kWordsByRow:
      return static_cast<uint64_t>(rows * ((cols + 32 / bits - 1) / (32 / bits)) * 4);
    case CodeLayout::kStreamByColumn: return static_cast<uint64_t>(cols * bits / 32 * rows * 4);
    case CodeLayout::kCrumbsAcrossRows: return static_cast<uint64_t>(rows / 4 * cols);
    case CodeLayout::kAwq: return static_cast<uint64_t>(cols * (rows / 8) * 4);
    case CodeLayout::kNvfp4Blocks:
      return static_cast<uint64_t>(rows * (cols / 64)) * sizeof(quant::NVFP4::Block);
  }
  return 0;
}

Status GroupedMatrix::check(const std::string& where) const {
  const auto fail = [&](std::string_view what, auto expected, auto got) {
    return errorf(ErrorCode::kCorruptFile, "{}: {}: expected {}, got {}", where, what, expected,
                  got);
  };
  if (rows < 1 || cols < 1)
    return fail("shape", "at least 1 x 1", fmt::format("{} x {}", rows, cols));
  if (bits < 2 || bits > 8) return fail("bits", "2 to 8", bits);
  if (group_size < 1 || cols % group_size != 0) {
    return fail("group size", fmt::format("a divisor of {} inputs", cols), group_size);
  }
  const bool nibbles =
      layout == CodeLayout::kNibblesLowFirst || layout == CodeLayout::kNibblesHighFirst;
  const bool four_bits =
      nibbles || layout == CodeLayout::kAwq || layout == CodeLayout::kNvfp4Blocks;
  if (four_bits && bits != 4) return fail("bits", 4, bits);
  if (layout == CodeLayout::kNvfp4Blocks && cols % 64 != 0)
    return fail("inputs", "a multiple of 64", cols);
  if (layout == CodeLayout::kNibblesLowFirst && cols % 2 != 0)
    return fail("inputs", "an even number", cols);
  if (layout == CodeLayout::kAwq && rows % 8 != 0) return fail("outputs", "a multiple of 8", rows);
  if (layout == CodeLayout::kStreamByColumn && static_cast<int64_t>(cols) * bits % 32 != 0) {
    return fail("inputs", "whole words of 32 bits", cols);
  }
  if (layout == CodeLayout::kCrumbsAcrossRows && (bits != 2 || rows % 4 != 0)) {
    return fail("outputs of 2 bits", "a multiple of 4", rows);
  }
  if ((layout == CodeLayout::kBytes || layout == CodeLayout::kSignedBytes) && bits != 8)
    return fail("bits", 8, bits);
  const uint64_t want_bytes = packed_bytes(layout, rows, cols, bits);
  if (packed.size() != want_bytes) return fail("bytes of codes", want_bytes, packed.size());
  const size_t n_scales = static_cast<size_t>(rows) * static_cast<size_t>(n_groups());
  if (scales.size() != n_scales) return fail("scales", n_scales, scales.size());
  if (!zeros.empty() && zeros.size() != n_scales)
    return fail("zero points", n_scales, zeros.size());
  if (!codebook.empty() && codebook.size() != size_t{1} << bits) {
    return fail("codebook", size_t{1} << bits, codebook.size());
  }
  for (const float level : codebook) {  // infinite levels: F8 only, whose codes include NaN
    if (bits <= 4 && !std::isfinite(level)) return fail("codebook", "finite levels", level);
  }
  using Coding = ActivationCoding::Kind;
  const bool is_static =
      activations.kind == Coding::kInt8Static || activations.kind == Coding::kF8E4M3Static;
  if (is_static && !(activations.static_scale > 0 && std::isfinite(activations.static_scale))) {
    return fail("scale of the activations", "a positive number", activations.static_scale);
  }
  if (input_order.empty()) return {};
  if (input_order.size() != static_cast<size_t>(cols))
    return fail("input order", cols, input_order.size());
  std::vector<bool> seen(input_order.size());
  for (const int32_t input : input_order) {
    if (input < 0 || input >= cols || seen[static_cast<size_t>(input)])
      return fail("input order", "a permutation", input);
    seen[static_cast<size_t>(input)] = true;
  }
  return {};
}

namespace {

// Arrangement of codes in lines: a line per row (per four rows in kCrumbsAcrossRows), or n_lines
// lines per `inputs` inputs. A line is a sequence of units.
struct LineShape {
  bool by_input;
  int codes;     // codes per unit of a line
  size_t bytes;  // bytes per unit
  int inputs;    // by_input: inputs that share n_lines lines
  int n_lines;
};

LineShape line_shape(const GroupedMatrix& m) {
  switch (m.layout) {
    case CodeLayout::kBytes:
    case CodeLayout::kSignedBytes:
    case CodeLayout::kCrumbsAcrossRows: return {false, 1, 1, 0, 0};
    case CodeLayout::kNibblesLowFirst:
    case CodeLayout::kNibblesHighFirst: return {false, 2, 1, 0, 0};
    case CodeLayout::kWordsByRow: return {false, 32 / m.bits, 4, 0, 0};
    case CodeLayout::kNvfp4Blocks: return {false, 64, sizeof(quant::NVFP4::Block), 0, 0};
    case CodeLayout::kStreamByColumn: return {true, 1, 4, 32, m.bits};
    case CodeLayout::kAwq: return {true, 8, 4, 1, 1};
  }
  return {};
}

// Whether rows have an odd number of nibbles, so that not every row begins with a byte.
bool is_flat(const GroupedMatrix& m) {
  return m.layout == CodeLayout::kNibblesHighFirst && m.cols % 2 != 0;
}

size_t line_bytes(const GroupedMatrix& m, const LineShape& shape) {
  const int n = shape.by_input ? m.rows : m.cols;
  return static_cast<size_t>((n + shape.codes - 1) / shape.codes) * shape.bytes;
}

}  // namespace

ByteLines GroupedMatrix::lines_of_rows(int first, int count) const {
  const LineShape shape = line_shape(*this);
  const size_t line = line_bytes(*this, shape);
  if (is_flat(*this) || layout == CodeLayout::kCrumbsAcrossRows || count == 0) return {packed};
  if (!shape.by_input)
    return {packed.subspan(static_cast<size_t>(first) * line, static_cast<size_t>(count) * line)};
  const auto unit = static_cast<size_t>(first / shape.codes),
             end = static_cast<size_t>((first + count + shape.codes - 1) / shape.codes);
  return {packed.subspan(unit * shape.bytes, (end - unit) * shape.bytes), line,
          packed.size() / line};
}

ByteLines GroupedMatrix::lines_of_inputs(int first, int count) const {
  const LineShape shape = line_shape(*this);
  const size_t line = line_bytes(*this, shape);
  if (is_flat(*this) || count == 0) return {packed};
  const int each = shape.by_input ? shape.inputs : shape.codes;
  const auto unit = static_cast<size_t>(first / each),
             end = static_cast<size_t>((first + count + each - 1) / each);
  const size_t bytes = shape.by_input ? line * static_cast<size_t>(shape.n_lines) : shape.bytes;
  const auto part = packed.subspan(
      unit * bytes, std::min(end * bytes, shape.by_input ? packed.size() : line) - unit * bytes);
  if (shape.by_input) return {part};
  return {part, line, packed.size() / line};
}

GroupedMatrix GroupedMatrix::columns(int first, int count, std::vector<std::byte>& storage) const {
  GroupedMatrix part = *this;
  part.cols = count;
  part.group_size = std::min(group_size, count);
  if (n_groups() > 1) {
    const auto own = [&](const auto& from, auto& to) {
      to.clear();
      for (auto row = from.begin(); row != from.end(); row += n_groups())
        to.insert(to.end(), row + first / group_size, row + (first + count) / group_size);
    };
    own(scales, part.scales);
    own(zeros, part.zeros);
  }
  const LineShape shape = line_shape(*this);
  const int each = shape.by_input ? shape.inputs : shape.codes;
  const bool whole_units =
      first % each == 0 && ((first + count) % each == 0 || first + count == cols);
  if (whole_units && !is_flat(*this)) {
    const ByteLines lines = lines_of_inputs(first, count);
    part.packed = lines.first;
    if (lines.count == 1) return part;
    storage.clear();
    for (size_t i = 0; i < lines.count; ++i) {
      const std::byte* const line = lines.first.data() + i * lines.stride;
      storage.insert(storage.end(), line, line + lines.first.size());
    }
    part.packed = storage;
    return part;
  }
  copy_codes(first, count, part, storage);
  return part;
}

// Copies codes one by one, into words.
void GroupedMatrix::copy_codes(int first, int count, GroupedMatrix& part,
                               std::vector<std::byte>& storage) const {
  part.layout = CodeLayout::kWordsByRow;
  const int per_word = 32 / bits;
  const auto n_words = static_cast<size_t>((count + per_word - 1) / per_word);
  std::vector<uint32_t> words(n_words * static_cast<size_t>(rows));
  std::vector<uint8_t> row(static_cast<size_t>(cols));
  for (int r = 0; r < rows; ++r) {
    codes(r, 1, row.data());
    for (int j = 0; j < count; ++j) {
      words[static_cast<size_t>(r) * n_words + static_cast<size_t>(j / per_word)] |=
          static_cast<uint32_t>(row[static_cast<size_t>(first + j)]) << (j % per_word * bits);
    }
  }
  const auto bytes = std::as_bytes(std::span(words));
  storage.assign(bytes.begin(), bytes.end());
  part.packed = storage;
}

GroupedMatrix GroupedMatrix::ordered(std::span<const int> order,
                                     std::vector<std::byte>& storage) const {
  GroupedMatrix result = *this;
  const auto per_word = static_cast<size_t>(32 / bits), width = static_cast<size_t>(cols);
  const size_t n_words = (width + per_word - 1) / per_word, n = static_cast<size_t>(n_groups());
  std::vector<uint8_t> line(width);
  std::vector<uint32_t> words(n_words);
  storage.resize(order.size() * n_words * sizeof(uint32_t));
  result.rows = static_cast<int>(order.size());
  result.scales.resize(order.size() * n);
  result.zeros.resize(zeros.empty() ? 0 : order.size() * n);
  for (size_t r = 0; r < order.size(); ++r) {
    const auto from = static_cast<size_t>(order[r]);
    row_codes(*this, order[r], line.data());
    std::ranges::fill(words, 0u);
    for (size_t j = 0; j < width; ++j)
      words[j / per_word] |= uint32_t{line[j]} << (j % per_word * static_cast<size_t>(bits));
    std::memcpy(storage.data() + r * n_words * sizeof(uint32_t), words.data(),
                n_words * sizeof(uint32_t));
    std::copy_n(scales.begin() + static_cast<ptrdiff_t>(from * n), n,
                result.scales.begin() + static_cast<ptrdiff_t>(r * n));
    if (zeros.empty()) continue;
    std::copy_n(zeros.begin() + static_cast<ptrdiff_t>(from * n), n,
                result.zeros.begin() + static_cast<ptrdiff_t>(r * n));
  }
  result.layout = CodeLayout::kWordsByRow;
  result.packed = storage;
  return result;
}

void GroupedMatrix::simplify_zeros() {
  for (const int16_t zero : zeros) {
    if (zero != zeros.front()) return;
  }
  if (zeros.empty()) return;
  uniform_zero = zeros.front();
  zeros.clear();
}

void GroupedMatrix::codes(int first_row, int n_rows, uint8_t* out) const {
  std::vector<uint8_t> in_file_order(input_order.size());
  for (int r = 0; r < n_rows; ++r, out += cols) {
    if (input_order.empty()) {
      row_codes(*this, first_row + r, out);
      continue;
    }
    row_codes(*this, first_row + r, in_file_order.data());
    for (int j = 0; j < cols; ++j)
      out[j] = in_file_order[static_cast<size_t>(input_order[static_cast<size_t>(j)])];
  }
}

void GroupedMatrix::dequantize(int first_row, int n_rows, float* out) const {
  std::vector<uint8_t> row(static_cast<size_t>(cols));
  for (int r = 0; r < n_rows; ++r, out += cols) {
    codes(first_row + r, 1, row.data());
    const size_t first_group = static_cast<size_t>(first_row + r) * static_cast<size_t>(n_groups());
    for (int j = 0; j < cols; ++j) {
      const size_t group = first_group + static_cast<size_t>(j / group_size);
      const uint8_t code = row[static_cast<size_t>(j)];
      const float level = codebook.empty() ? static_cast<float>(code) : codebook[code];
      const float zero = zeros.empty() ? uniform_zero : zeros[group];
      out[input_order.empty() ? j : input_order[static_cast<size_t>(j)]] =
          scales[group] * (level - zero);
    }
  }
}

}  // namespace penstock
