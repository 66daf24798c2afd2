#include "images/view_processor.h"

#include <algorithm>
#include <cmath>

#include "base/half.h"

namespace penstock {
namespace {

float as_bfloat16(float value) { return to_float(to_bfloat16(value)); }

// Writes one patch.
float* write_patch(std::span<const Image> frames, int left, int top, const PatchOrder& order,
                   const std::array<std::array<float, 256>, 3>& table, float* to) {
  if (order.channels_last) {
    for (int y = 0; y < order.patch; ++y) {
      const uint8_t* from = frames[0].row(top + y) + size_t{3} * left;
      for (int x = 0; x < order.patch; ++x)
        for (int c = 0; c < 3; ++c) *to++ = table[c][*from++];
    }
    return to;
  }
  const size_t area = size_t{1} * order.patch * order.patch;
  for (int c = 0; c < 3; ++c) {
    const float* plane = to;
    for (int frame = 0; frame < order.frames; ++frame) {
      if (static_cast<size_t>(frame) >= frames.size()) {
        to = std::copy_n(plane, area, to);
        continue;
      }
      plane = to;
      for (int y = 0; y < order.patch; ++y) {
        const uint8_t* from =
            frames[static_cast<size_t>(frame)].row(top + y) + size_t{3} * left + c;
        for (int x = 0; x < order.patch; ++x) *to++ = table[c][from[3 * x]];
      }
    }
  }
  return to;
}

}  // namespace

void write_planes(const Image& view, const std::array<std::array<float, 256>, 3>& table,
                  float* to) {
  const size_t n = size_t{1} * view.width * view.height;
  for (size_t c = 0; c < 3; ++c)
    for (size_t i = 0; i < n; ++i) to[n * c + i] = table[c][view.rgb[3 * i + c]];
}

void write_patches(std::span<const Image> frames, const PatchOrder& order,
                   const std::array<std::array<float, 256>, 3>& table, float* to) {
  const int block = order.patch * order.merge;
  for (int top = 0; top < frames[0].height; top += block)
    for (int left = 0; left < frames[0].width; left += block)
      for (int y = top; y < top + block; y += order.patch)
        for (int x = left; x < left + block; x += order.patch)
          to = write_patch(frames, x, y, order, table, to);
}

std::array<std::array<float, 256>, 3> PixelSettings::table() const {
  std::array<std::array<float, 256>, 3> values{};
  const auto factor = static_cast<float>(rescale_factor);
  for (size_t c = 0; c < 3; ++c)
    for (size_t i = 0; i < 256; ++i) {
      const auto value = static_cast<float>(i);
      float& out = values[c][i];
      if (in_bfloat16 && do_rescale && do_normalize) {
        out = as_bfloat16(value * factor);
        out = as_bfloat16(as_bfloat16(out - as_bfloat16(mean[c])) / as_bfloat16(std[c]));
      } else if (do_normalize) {  // torch folds the factor into mean and std
        const float scale = do_rescale ? static_cast<float>(1.0 / rescale_factor) : 1.0f;
        out = (value - mean[c] * scale) / (std[c] * scale);
      } else {
        out = do_rescale ? value * factor : value;
      }
    }
  return values;
}

PixelSettings read_pixel_settings(ProcessorSettings& settings, PixelSettings defaults) {
  PixelSettings pixels = defaults;
  if (!settings.flag("do_resize", true)) settings.refuse("do_resize", "true", "false");
  const int published = defaults.filter == ResizeFilter::kLanczos    ? 1
                        : defaults.filter == ResizeFilter::kBilinear ? 2
                                                                     : 3;
  switch (settings.integer("resample", published, 0, 5)) {  // Pillow's numbers
    case 1: pixels.filter = ResizeFilter::kLanczos; break;
    case 2: pixels.filter = ResizeFilter::kBilinear; break;
    case 3: pixels.filter = ResizeFilter::kBicubic; break;
    default:
      settings.refuse("resample", "1 (Lanczos), 2 (bilinear) or 3 (bicubic)", "another filter");
  }
  pixels.do_rescale = settings.flag("do_rescale", defaults.do_rescale);
  pixels.rescale_factor = settings.number("rescale_factor", defaults.rescale_factor);
  pixels.do_normalize = settings.flag("do_normalize", defaults.do_normalize);
  pixels.mean = settings.channels("image_mean", defaults.mean);
  pixels.std = settings.channels("image_std", defaults.std);
  for (const float value : pixels.std)
    if (value == 0) settings.refuse("image_std", "numbers other than 0", "0");
  if (pixels.rescale_factor == 0) settings.refuse("rescale_factor", "a number other than 0", "0");
  return pixels;
}

void ViewProcessor::add_view(ImagePlan& plan, int height, int width, int n_tokens) const {
  ImageView view{height, width};
  const int patch = order_.patch > 0 ? order_.patch : grid_patch_;
  if (patch > 0) view.grid_h = height / patch, view.grid_w = width / patch;
  view.n_tokens = n_tokens;
  plan.views.push_back(view);
}

Status ViewProcessor::check_square(int width, int height) {
  constexpr int64_t kMostPixels = int64_t{1} << 27;
  const int64_t side = std::max(width, height);
  if (side <= kMostPixels / side) return {};
  return errorf(ErrorCode::kInvalidArgument,
                "image of {} x {}: expected a square around it of at most {} pixels, got {} x {}",
                width, height, kMostPixels, side, side);
}

Result<ImagePlan> ViewProcessor::plan(int width, int height) const {
  if (width < 1 || height < 1)
    return errorf(ErrorCode::kInvalidArgument, "image: expected at least one pixel, got {} x {}",
                  width, height);
  ImagePlan plan;
  plan.width = width, plan.height = height;
  RETURN_IF_ERROR(plan_views(width, height, plan));
  constexpr int64_t kMostPixels = int64_t{1} << 27;
  int64_t n = 0;
  for (const ImageView& view : plan.views) n += int64_t{view.height} * view.width;
  if (n > kMostPixels)
    return errorf(ErrorCode::kInvalidArgument,
                  "image of {} x {}: expected to become at most {} pixels, got {}", width, height,
                  kMostPixels, n);
  return plan;
}

Result<ProcessedImage> ViewProcessor::process(const Image& image) const {
  ASSIGN_OR_RETURN(ImagePlan plan, this->plan(image.width, image.height));
  const std::vector<Image> views = make_views(image, plan);
  const auto table = pixels_.table();
  ProcessedImage processed;
  processed.layout = order_.layout;
  if (order_.layout == PixelLayout::kPatches)
    processed.patch_dim = 3 * order_.frames * order_.patch * order_.patch;
  size_t n = 0;
  for (const Image& view : views) n += view.rgb.size() * order_.frames;
  processed.pixels.resize(n);
  float* to = processed.pixels.data();
  for (size_t i = 0; i < views.size(); ++i) {
    if (views[i].width != plan.views[i].width || views[i].height != plan.views[i].height)
      return errorf(ErrorCode::kInternal, "image: view {} was planned as {} x {}, made as {} x {}",
                    i, plan.views[i].width, plan.views[i].height, views[i].width, views[i].height);
    if (order_.layout == PixelLayout::kPlanes)
      write_planes(views[i], table, to);
    else
      write_patches({&views[i], 1}, order_, table, to);
    to += views[i].rgb.size() * order_.frames;
  }
  processed.plan = std::move(plan);
  return processed;
}

Image crop_image(const Image& image, int left, int top, int width, int height) {
  width = std::min(width, image.width - left), height = std::min(height, image.height - top);
  Image part{width, height, std::vector<uint8_t>(size_t{3} * width * height)};
  for (int y = 0; y < height; ++y)
    std::copy_n(image.row(top + y) + size_t{3} * left, size_t{3} * width, part.row(y));
  return part;
}

Image pad_image(const Image& image, int left, int top, int width, int height,
                std::array<uint8_t, 3> color) {
  Image padded{width, height, std::vector<uint8_t>(size_t{3} * width * height)};
  if (color != std::array<uint8_t, 3>{})
    for (size_t i = 0; i < padded.rgb.size(); ++i) padded.rgb[i] = color[i % 3];
  for (int y = 0; y < image.height; ++y)
    std::copy_n(image.row(y), size_t{3} * image.width, padded.row(top + y) + size_t{3} * left);
  return padded;
}

void add_tiles(const Image& image, int rows, int columns, std::vector<Image>& views) {
  const int height = image.height / rows, width = image.width / columns;
  for (int row = 0; row < rows; ++row)
    for (int column = 0; column < columns; ++column)
      views.push_back(crop_image(image, column * width, row * height, width, height));
}

double python_round(double value) { return std::nearbyint(value); }

std::pair<int, int> nearest_tiles(int width, int height, int tile_width, int tile_height,
                                  int min_tiles, int max_tiles) {
  const double ratio = static_cast<double>(width) / height,
               area = static_cast<double>(width) * height;
  double least = INFINITY;
  std::pair<int, int> best = {1, 1};
  for (int n = min_tiles; n <= max_tiles; ++n)
    for (int columns = 1; columns <= n; ++columns) {
      if (n % columns != 0) continue;
      const int rows = n / columns;
      const double difference = std::abs(ratio - static_cast<double>(columns) / rows);
      const bool tie =
          difference == least && area > 0.5 * tile_width * tile_height * columns * rows;
      if (difference < least || tie) best = {columns, rows};
      least = std::min(least, difference);
    }
  return best;
}

std::string FamilyInputs::token(const char* name, const char* published) const {
  for (const char* const group : {"", "extra_special_tokens", "model_specific_special_tokens"}) {
    if (!files.tokenizer.is_object()) break;
    if (*group != '\0' && !files.tokenizer.contains(group)) continue;
    const nlohmann::json& names = *group == '\0' ? files.tokenizer : files.tokenizer[group];
    if (!names.is_object() || !names.contains(name)) continue;
    const nlohmann::json& value = names[name];
    if (value.is_string()) return value.get<std::string>();
    if (value.is_object() && value.contains("content") && value["content"].is_string())
      return value["content"].get<std::string>();
  }
  return published;
}

int FamilyInputs::config_integer(std::initializer_list<const char*> path) const {
  const nlohmann::json* at = &files.config;
  for (const char* const name : path) {
    if (!at->is_object() || !at->contains(name)) return 0;
    at = &(*at)[name];
  }
  if (!at->is_number()) return 0;
  const double value = at->get<double>();
  return value >= 1 && value <= (1 << 20) ? static_cast<int>(value) : 0;
}

std::string FamilyInputs::model_type() const {
  if (!files.config.is_object() || !files.config.contains("model_type") ||
      !files.config["model_type"].is_string())
    return "";
  return files.config["model_type"].get<std::string>();
}

}  // namespace penstock
