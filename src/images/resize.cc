#include "images/resize.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace penstock {
namespace {

// What an output coordinate is made of: n_taps inputs from `first` on, with 16-bit weights.
struct ResizeTaps {
  std::vector<int> first, n_taps;
  std::vector<int16_t> weights;  // max_taps for each output
  int max_taps = 0;
  int shift = 0;  // weights are multiples of 2^-shift

  const int16_t* weights_of(int i) const { return weights.data() + size_t{1} * max_taps * i; }
};

double bicubic(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
  if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * a;
  return 0.0;
}

double sinc(double x) {
  if (x == 0.0) return 1.0;
  x *= std::numbers::pi;
  return std::sin(x) / x;
}

double filter_weight(ResizeFilter filter, double x) {
  switch (filter) {
    case ResizeFilter::kBilinear: return std::abs(x) < 1.0 ? 1.0 - std::abs(x) : 0.0;
    case ResizeFilter::kBicubic: return bicubic(x);
    case ResizeFilter::kLanczos: return std::abs(x) < 3.0 ? sinc(x) * sinc(x / 3) : 0.0;
  }
  return 0.0;
}

double filter_support(ResizeFilter filter) {
  return filter == ResizeFilter::kBilinear ? 1.0 : filter == ResizeFilter::kBicubic ? 2.0 : 3.0;
}

// Rounds half away from zero, as the weights of torchvision.
int16_t as_weight(double value) {
  return static_cast<int16_t>(value < 0 ? value - 0.5 : value + 0.5);
}

// One number of bits for all weights of an axis: the most with which the greatest is below 2^15.
int weight_bits(double greatest) {
  int bits = 0;
  while (bits < 22 && static_cast<int>(0.5 + greatest * (1 << (bits + 1))) < (1 << 15)) ++bits;
  return bits;
}

ResizeTaps make_taps(int in, int out, ResizeFilter filter) {
  const double scale = static_cast<double>(in) / out, stretch = std::max(scale, 1.0);
  const double support = filter_support(filter) * stretch, inverse = 1.0 / stretch;
  ResizeTaps taps;
  taps.max_taps = static_cast<int>(std::ceil(support)) * 2 + 1;
  taps.first.resize(out), taps.n_taps.resize(out);
  std::vector<double> exact(size_t{1} * taps.max_taps * out);
  double greatest = 0;
  for (int i = 0; i < out; ++i) {
    const double center = scale * (i + 0.5);
    const int first = std::max(static_cast<int>(center - support + 0.5), 0);
    const int end = std::min(static_cast<int>(center + support + 0.5), in);
    taps.first[i] = first;
    taps.n_taps[i] = std::clamp(end - first, 0, taps.max_taps);
    double* const weights = exact.data() + size_t{1} * taps.max_taps * i;
    double sum = 0;
    for (int j = 0; j < taps.n_taps[i]; ++j)
      sum += weights[j] = filter_weight(filter, (j + first - center + 0.5) * inverse);
    for (int j = 0; j < taps.n_taps[i] && sum != 0; ++j)
      greatest = std::max(greatest, weights[j] /= sum);
  }
  taps.shift = weight_bits(greatest);
  taps.weights.resize(exact.size());
  for (size_t i = 0; i < exact.size(); ++i)
    taps.weights[i] = as_weight(exact[i] * (1 << taps.shift));
  return taps;
}

// to[i] = sum of weights[j] * from[j * stride + i], rounded and limited to 8 bits. Written for the compiler to
// use vectors: kChunk sums are kept at a time.
void weigh(const uint8_t* from, size_t stride, const int16_t* weights, int n_taps, int shift,
           uint8_t* to, size_t n) {
  constexpr size_t kChunk = 32;
  const int32_t half = shift > 0 ? 1 << (shift - 1) : 0;
  size_t at = 0;
  for (; at + kChunk <= n; at += kChunk) {
    int32_t sums[kChunk];
    for (int32_t& sum : sums) sum = half;
    for (int j = 0; j < n_taps; ++j) {
      const uint8_t* const row = from + stride * j + at;
      const int32_t weight = weights[j];
      for (size_t i = 0; i < kChunk; ++i) sums[i] += weight * row[i];
    }
    for (size_t i = 0; i < kChunk; ++i)
      to[at + i] = static_cast<uint8_t>(std::clamp(sums[i] >> shift, 0, 255));
  }
  for (; at < n; ++at) {
    int32_t sum = half;
    for (int j = 0; j < n_taps; ++j) sum += weights[j] * from[stride * j + at];
    to[at] = static_cast<uint8_t>(std::clamp(sum >> shift, 0, 255));
  }
}

// Copies `rows` rows of `columns` pixels so that columns are rows, a square at a time, which stays in the
// nearest cache. Strides are in bytes.
void transpose_pixels(const uint8_t* from, size_t from_stride, uint8_t* to, size_t to_stride,
                      int rows, int columns) {
  constexpr int kSide = 32;
  for (int top = 0; top < rows; top += kSide)
    for (int left = 0; left < columns; left += kSide) {
      const int bottom = std::min(top + kSide, rows), right = std::min(left + kSide, columns);
      for (int y = top; y < bottom; ++y) {
        const uint8_t* in = from + from_stride * y + size_t{3} * left;
        uint8_t* out = to + to_stride * left + size_t{3} * y;
        for (int x = left; x < right; ++x, in += 3, out += to_stride)
          out[0] = in[0], out[1] = in[1], out[2] = in[2];
      }
    }
}

// Resizes along rows: blocks of rows are turned, so that all pixels of a column are next to each other.
Image resize_rows(const Image& image, int width, const ResizeTaps& taps) {
  constexpr int kRows = 32;
  Image resized{width, image.height, std::vector<uint8_t>(size_t{3} * width * image.height)};
  std::vector<uint8_t> turned(size_t{3} * kRows * image.width), result(size_t{3} * kRows * width);
  for (int y = 0; y < image.height; y += kRows) {
    const int rows = std::min(kRows, image.height - y);
    const size_t stride = size_t{3} * rows;
    transpose_pixels(image.row(y), size_t{3} * image.width, turned.data(), stride, rows,
                     image.width);
    for (int x = 0; x < width; ++x)
      weigh(turned.data() + stride * taps.first[x], stride, taps.weights_of(x), taps.n_taps[x],
            taps.shift, result.data() + stride * x, stride);
    transpose_pixels(result.data(), stride, resized.row(y), size_t{3} * width, width, rows);
  }
  return resized;
}

Image resize_columns(const Image& image, int height, const ResizeTaps& taps) {
  const size_t stride = size_t{3} * image.width;
  Image resized{image.width, height, std::vector<uint8_t>(stride * height)};
  for (int y = 0; y < height; ++y)
    weigh(image.row(taps.first[y]), stride, taps.weights_of(y), taps.n_taps[y], taps.shift,
          resized.row(y), stride);
  return resized;
}

}  // namespace

Image resize_image(const Image& image, int width, int height, ResizeFilter filter) {
  const bool rows = width != image.width, columns = height != image.height;
  if (!rows && !columns) return image;
  if (!rows) return resize_columns(image, height, make_taps(image.height, height, filter));
  Image resized = resize_rows(image, width, make_taps(image.width, width, filter));
  if (!columns) return resized;
  return resize_columns(resized, height, make_taps(image.height, height, filter));
}

}  // namespace penstock
