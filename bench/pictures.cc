// Speed of what becomes of pictures, as JSON: decoding and resizing of files, and images a second of a tower. See pictures.py.
//
//   bench_pictures decode FILE WIDTH HEIGHT ROUNDS     one thread; bicubic
//   bench_pictures tower DIRECTORY WIDTH HEIGHT ROUNDS THREADS
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/json_text.h"
#include "engine/open/picture_encoder.h"
#include "formats/weight_source.h"
#include "images/image.h"
#include "images/image_processor.h"
#include "images/resize.h"

namespace penstock {
namespace {

using Clock = std::chrono::steady_clock;

int fail(const std::string& message) {
  fmt::print(stderr, "{}\n", message);
  return 1;
}

template <class F>
double milliseconds(int rounds, F work) {
  std::vector<double> taken;
  for (int i = 0; i < rounds; ++i) {
    const auto begin = Clock::now();
    work();
    taken.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
  }
  std::ranges::nth_element(taken, taken.begin() + rounds / 2);
  return taken[static_cast<size_t>(rounds / 2)];
}

int decode(const std::string& path, int width, int height, int rounds) {
  std::ifstream stream(path, std::ios::binary);
  const std::string file{std::istreambuf_iterator<char>(stream), {}};
  const auto bytes = std::as_bytes(std::span(file));
  auto image = decode_image(bytes);
  if (!image) return fail(path + ": " + image.error().message);
  const double decoded = milliseconds(rounds, [&] { image = decode_image(bytes); });
  int seen = 0;
  const double resized = milliseconds(
      rounds, [&] { seen += resize_image(*image, width, height, ResizeFilter::kBicubic).rgb[0]; });
  fmt::print("{{\"decode_ms\": {:.3f}, \"resize_ms\": {:.3f}, \"seen\": {}}}\n", decoded, resized,
             seen);
  return 0;
}

Image drawn(int width, int height) {
  Image image{width, height, {}};
  image.rgb.resize(size_t{3} * static_cast<size_t>(width) * static_cast<size_t>(height));
  for (size_t i = 0; i < image.rgb.size(); ++i)
    image.rgb[i] = static_cast<uint8_t>(i * 7 + i / 991);
  return image;
}

int tower(const std::string& path, int width, int height, int rounds, int threads) {
  auto source = open_weights(path);
  if (!source) return fail(source.error().message);
  EngineConfig config;
  config.model = path, config.threads = threads;
  auto encoder = PictureEncoder::open(**source, config);
  if (!encoder) return fail(encoder.error().message);
  if (*encoder == nullptr) return fail(path + ": no tower");
  ImageProcessorFiles files;
  files.config = (*source)->config();
  files.image_processor =
      bounded_json<nlohmann::json>((*source)->side_file("preprocessor_config.json").value_or("{}"));
  auto processor = make_image_processor(files);
  if (!processor) return fail(processor.error().message);
  const Image image = drawn(width, height);
  Result<ProcessedImage> processed = (*processor)->process(image);
  if (!processed) return fail(processed.error().message);
  const double prepared = milliseconds(rounds, [&] { processed = (*processor)->process(image); });
  const ImageView& view = processed->plan.views[0];
  const bool patches = processed->layout == PixelLayout::kPatches;
  const size_t n = processed->pixels.size() / processed->plan.views.size();
  const PicturePixels pixels{std::span(processed->pixels).first(n), patches ? view.grid_h : 0,
                             patches ? view.grid_w : 0, patches ? 0 : view.height,
                             patches ? 0 : view.width};
  int n_rows = 0;
  std::string error;
  const auto encode = [&] {
    const auto rows = (*encoder)->encode({&pixels, 1}, []() -> Status { return {}; });
    if (!rows) error = rows.error().message;
    if (rows) n_rows = rows->n_rows;
  };
  encode();  // grids are prepared once
  const double encoded = milliseconds(rounds, encode);
  if (!error.empty()) return fail(error);
  fmt::print(
      "{{\"view\": [{}, {}], \"tokens\": {}, \"tower_bytes\": {}, \"processor_ms\": {:.2f}, "
      "\"encode_ms\": {:.2f}, \"images_per_second\": {:.4f}}}\n",
      view.width, view.height, n_rows, (*encoder)->weight_bytes(), prepared, encoded,
      1e3 / (encoded + prepared));
  return 0;
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv, argv + argc);
  const auto number = [&](size_t i) { return std::max(std::atoi(args[i].c_str()), 1); };
  if (args.size() == 6 && args[1] == "decode")
    return penstock::decode(args[2], number(3), number(4), number(5));
  if (args.size() == 7 && args[1] == "tower")
    return penstock::tower(args[2], number(3), number(4), number(5), number(6));
  return penstock::fail("usage: bench_pictures decode|tower PATH WIDTH HEIGHT ROUNDS [THREADS]");
}
