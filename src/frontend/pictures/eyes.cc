#include "frontend/pictures/eyes.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <future>
#include <new>
#include <type_traits>

#include "base/json_text.h"
#include "base/memory.h"
#include "base/sha256.h"
#include "formats/contents.h"
#include "formats/hf_config.h"
#include "frontend/pictures/stitch.h"
#include "frontend/pictures/video_frames.h"

namespace penstock {
namespace {

using Identity = std::array<uint64_t, 2>;

std::span<const std::byte> bytes_of(const Picture& picture) {
  return std::as_bytes(std::span(*picture.file));
}

Identity hash_of(std::string_view text) {
  const Sha256 digest = sha256(text);
  Identity identity;
  std::memcpy(identity.data(), digest.data(), sizeof identity);
  return identity;
}

std::string dumped(const nlohmann::json& value) {
  return value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

tl::unexpected<Error> at_place(const Picture& picture, Error error) {
  error.message = picture.where + ": " + error.message;
  return tl::unexpected(std::move(error));
}

nlohmann::json json_of(const WeightSource& source, const char* file) {
  const std::optional<std::string> text = source.side_file(file);
  return text ? bounded_json<nlohmann::json>(*text) : nlohmann::json();
}

ImageProcessorFiles files_of(const WeightSource& source, bool hears) {
  ImageProcessorFiles files;
  files.config = multimodal_part(source.config());
  files.processor = json_of(source, "processor_config.json");
  files.image_processor = json_of(source, "preprocessor_config.json");
  files.tokenizer = json_of(source, "tokenizer_config.json");
  files.video_processor = json_of(source, "video_preprocessor_config.json");
  if (files.image_processor.is_null() && files.processor.is_object()) {
    for (const char* const key : {"image_processor", "feature_extractor", "audio_processor"}) {
      const auto found = files.processor.find(key);
      const bool wanted = hears == (std::string_view(key) != "image_processor");
      if (wanted && found != files.processor.end()) files.image_processor = *found;
    }
  }
  return files;
}

PicturePixels view_of(const ImageView& view, PixelLayout layout, std::span<const float> values) {
  if (layout == PixelLayout::kPatches) return {values, view.grid_h, view.grid_w, 0, 0};
  return {values, 0, 0, view.height, view.width};
}

Eyes::Limits with_memory(Eyes::Limits limits) {
  if (limits.row_bytes == 0) limits.row_bytes = total_memory() / 4;
  return limits;
}

// Short, so that it needs no memory.
tl::unexpected<Error> out_of_memory() {
  return make_error(ErrorCode::kResourceExhausted, "memory ran out");
}

Status check_rows(const PictureEncoder& encoder, int levels, const WeightSource& tower,
                  const EngineInfo& info) {
  if (encoder.row_size() == info.model_dim && levels == info.embedding_levels) return {};
  return errorf(ErrorCode::kInvalidArgument,
                "{}: the tower of another model: its rows have {} numbers in {} levels, those of "
                "the text model {} in {}",
                tower.path().string(), encoder.row_size(), levels, info.model_dim,
                info.embedding_levels);
}

ImageProcessorFiles files_of_both(const WeightSource& tower, const WeightSource& model,
                                  bool hears) {
  std::error_code none;
  if (std::filesystem::is_directory(tower.path(), none)) return files_of(tower, hears);
  ImageProcessorFiles files = files_of(model, hears);
  return files.image_processor.is_object() ? files : files_of(tower, hears);
}

// apart: what tells the tower from others if it has files of its own.
Identity hash_of(const ImageProcessorFiles& files, const std::string& apart) {
  std::string settings;
  for (const nlohmann::json* file :
       {&files.config, &files.image_processor, &files.processor, &files.video_processor})
    settings += dumped(*file) + '\n';
  return hash_of(settings + apart);
}

template <class Processor>
std::optional<PromptMark> mark_of(const Processor* processor) {
  if (processor == nullptr) return std::nullopt;
  PromptMark mark{processor->placeholder(), processor->soft_token()};
  if constexpr (std::is_same_v<Processor, Ear>) mark.soft_is_text = processor->soft_token_is_text();
  return mark;
}

}  // namespace

Result<Eyes::Eye> Eyes::open_eye(std::unique_ptr<PictureEncoder> encoder, const WeightSource& tower,
                                 const WeightSource& model, const EngineInfo& info) {
  Eye eye;
  if (encoder == nullptr) return eye;
  RETURN_IF_ERROR(check_rows(*encoder, encoder->levels(), tower, info));
  if (encoder->grid_positions() != info.positions_have_axes) {
    return errorf(ErrorCode::kUnsupported,
                  "the tower's tokens have {} as positions, those of the text model ({}) {}",
                  encoder->grid_positions() ? "rows and columns" : "their order", info.architecture,
                  info.positions_have_axes ? "rows and columns" : "their order");
  }
  eye.files = files_of_both(tower, model, false);
  ASSIGN_OR_RETURN(eye.processor, make_image_processor(eye.files));
  auto videos = make_video_processor(eye.files);
  if (videos) {
    eye.videos = *std::move(videos);
  } else {
    eye.no_videos = videos.error().message;  // pictures are seen all the same
  }
  eye.encoder = std::move(encoder);
  return eye;
}

// Positions of sounds' tokens are their order, on all axes. They add nothing to further layers.
Result<Eyes::Hearing> Eyes::open_ear(std::unique_ptr<PictureEncoder> encoder,
                                     const WeightSource& tower, const WeightSource& model,
                                     const EngineInfo& info, const Limits& limits) {
  Hearing hearing;
  if (encoder == nullptr) return hearing;
  RETURN_IF_ERROR(check_rows(*encoder, info.embedding_levels, tower, info));
  hearing.files = files_of_both(tower, model, true);
  ASSIGN_OR_RETURN(hearing.processor, Ear::open(hearing.files, limits.sound));
  hearing.encoder = std::move(encoder);
  return hearing;
}

Result<std::unique_ptr<Eyes>> Eyes::open(Towers towers, const WeightSource& tower,
                                         const WeightSource& model, const EngineInfo& info,
                                         const Limits& limits) {
  auto eye = [&]() -> Result<Eye> {
    ASSIGN_OR_RETURN(auto encoder, std::move(towers.sight));
    return open_eye(std::move(encoder), tower, model, info);
  }();
  auto hearing = [&]() -> Result<Hearing> {
    ASSIGN_OR_RETURN(auto encoder, std::move(towers.hearing));
    return open_ear(std::move(encoder), tower, model, info, limits);
  }();
  const bool sees = eye && eye->processor != nullptr,
             hears = hearing && hearing->processor != nullptr;
  if (!sees && !hears) {
    if (eye && hearing) return nullptr;
    if (!eye && !hearing) return tl::unexpected(error_of_both(eye.error(), hearing.error()));
    return tl::unexpected(eye ? hearing.error() : eye.error());
  }
  std::array<std::string, 2> why_not;
  if (!eye) why_not[0] = std::move(eye).error().message, eye = Eye();
  if (!hearing) why_not[1] = std::move(hearing).error().message, hearing = Hearing();
  // Rows depend on a tower of its own too, of which the model's identity says nothing.
  const std::string apart = &tower == &model ? "" : dumped(tower.config()) + contents_of(tower);
  const std::array<Identity, 2> settings = {hash_of(eye->files, apart),
                                            hash_of(hearing->files, apart)};
  std::unique_ptr<Eyes> eyes(new Eyes(*std::move(eye), *std::move(hearing), info, limits));
  eyes->settings_ = settings, eyes->why_not_ = std::move(why_not);
  return eyes;
}

Eyes::Eyes(Eye eye, Hearing hearing, const EngineInfo& info, const Limits& limits)
    : files_(std::move(eye.files)),
      processor_(std::move(eye.processor)),
      videos_(std::move(eye.videos)),
      no_videos_(std::move(eye.no_videos)),
      ear_(std::move(hearing.processor)),
      encoder_(std::move(eye.encoder)),
      ear_encoder_(std::move(hearing.encoder)),
      info_(info),
      limits_(with_memory(limits)),
      prompt_(mark_of(processor_.get()), mark_of(ear_.get()), mark_of(videos_.get())),
      held_bytes_(std::make_shared<std::atomic<int64_t>>(0)),
      thread_([this] { work(); }) {}

int64_t Eyes::weight_bytes() const {
  return (sees() ? encoder_->weight_bytes() : 0) + (hears() ? ear_encoder_->weight_bytes() : 0);
}

Result<Eyes::Own> Eyes::with_settings(const nlohmann::json& settings) const {
  Own own;
  if (settings.empty()) return own;
  if (!sees())
    return make_error(ErrorCode::kUnsupported, "mm_processor_kwargs: sounds have no settings");
  const auto failed = [](const Error& error) {
    return errorf(error.code, "mm_processor_kwargs: {}", error.message);
  };
  auto made = make_image_processor(files_, watches() ? settings_for_images(settings) : settings);
  if (!made) return failed(made.error());
  own.pictures = *std::move(made);
  bool other_names = own.pictures->placeholder() != processor_->placeholder() ||
                     own.pictures->soft_token() != processor_->soft_token();
  if (watches()) {
    auto videos = make_video_processor(files_, settings_for_videos(settings));
    if (!videos) return failed(videos.error());
    own.videos = *std::move(videos);
    other_names = other_names || own.videos->placeholder() != videos_->placeholder() ||
                  own.videos->soft_token() != videos_->soft_token();
  }
  if (!other_names) return own;
  return make_error(ErrorCode::kInvalidArgument,
                    "mm_processor_kwargs: names of tokens are the model's");
}

Result<std::vector<PlannedPicture>> Eyes::plan(std::vector<Picture> pictures,
                                               const nlohmann::json& settings) const {
  ASSIGN_OR_RETURN(Own own, with_settings(settings));
  Identity hash{};
  if (own.pictures != nullptr) hash = hash_of(dumped(settings));
  const auto n_seen = std::ranges::count_if(
      pictures, [](const Picture& one) { return !one.is_sound && one.video == nullptr; });
  if (n_seen > 1) {
    if (auto several = (own.pictures != nullptr ? *own.pictures : *processor_).for_several()) {
      own.pictures = std::move(several);
      ++hash[0];
    }
  }
  std::vector<PlannedPicture> result;
  for (Picture& picture : pictures) {
    ASSIGN_OR_RETURN(PlannedPicture planned, plan_one(std::move(picture), own));
    if (!planned.picture.is_sound) {
      planned.processor = own.pictures, planned.video_processor = own.videos;
      for (size_t i = 0; i < hash.size(); ++i) planned.identity[i] ^= hash[i];
    }
    result.push_back(std::move(planned));
  }
  return result;
}

Result<ImagePlan> Eyes::plan_picture(const Picture& picture, const Own& own) const {
  if (picture.is_sound) return ear_->plan(bytes_of(picture));
  if (picture.video != nullptr) {
    if (!watches()) {
      return errorf(ErrorCode::kInvalidArgument, "this model takes no videos{}{}",
                    no_videos_.empty() ? "" : ": ", no_videos_);
    }
    return plan_video(*picture.video, own.videos != nullptr ? *own.videos : *videos_,
                      limits_.image);
  }
  if (picture.file->size() > limits_.image.max_bytes) {
    return errorf(ErrorCode::kInvalidArgument, "expected a picture of at most {} bytes, got {}",
                  limits_.image.max_bytes, picture.file->size());
  }
  ASSIGN_OR_RETURN(const ImageInfo info, read_image_info(bytes_of(picture)));
  if (int64_t{info.width} * info.height > limits_.image.max_pixels) {
    return errorf(ErrorCode::kInvalidArgument,
                  "expected a picture of at most {} pixels, got {} x {}", limits_.image.max_pixels,
                  info.width, info.height);
  }
  return (own.pictures != nullptr ? *own.pictures : *processor_).plan(info.width, info.height);
}

Result<PlannedPicture> Eyes::plan_one(Picture picture, const Own& own) const {
  Result<ImagePlan> plan = plan_picture(picture, own);
  if (!plan) return at_place(picture, plan.error());
  PlannedPicture planned{std::move(picture), *std::move(plan), {}, nullptr};
  planned.identity = hash_of(planned.picture.video == nullptr
                                 ? *planned.picture.file
                                 : name_of(*planned.picture.video, planned.plan,
                                           [](std::string_view text) { return hash_of(text); }));
  const Identity& settings = settings_[planned.picture.is_sound ? 1 : 0];
  for (size_t i = 0; i < settings.size(); ++i) planned.identity[i] ^= settings[i];
  return planned;
}

PlannedPicture Eyes::plan_window(SoundView window, std::string where) const {
  PlannedPicture planned;
  planned.picture = {std::move(where), std::make_shared<const std::string>(), true,
                     std::make_shared<const SoundView>(std::move(window))};
  const std::vector<float>& values = planned.picture.window->values;
  planned.plan.n_soft = planned.picture.window->n_positions;
  planned.identity = hash_of(std::string_view(reinterpret_cast<const char*>(values.data()),
                                              values.size() * sizeof(float)));
  for (size_t i = 0; i < settings_[1].size(); ++i) planned.identity[i] ^= settings_[1][i];
  return planned;
}

std::vector<PromptEmbeddings> Eyes::embeddings_of(const PromptPictures& pictures,
                                                  const PictureRows& rows) const {
  const bool axes = info_.positions_have_axes && sees();
  return penstock::embeddings_of(pictures, rows, axes ? encoder_->unit() : 0);
}

int64_t Eyes::row_bytes_of(const PlannedPicture& picture) const {
  return int64_t{picture.plan.n_soft} * info_.model_dim * info_.embedding_levels *
         int64_t{sizeof(float)};
}

// Returns why a call cannot wait, if so.
std::optional<Error> Eyes::why_over(const Open& open) const {
  const size_t most_bytes = limits_.waiting_bytes / 4 * 3;  // of one key
  if (open.bytes > most_bytes || open.row_bytes > limits_.row_bytes) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("expected {} of at most {} MiB together, which become at most {} MiB, got {} "
                    "that become {}",
                    kind(), most_bytes >> 20, limits_.row_bytes >> 20, open.bytes >> 20,
                    open.row_bytes >> 20)};
  }
  const auto found = tenants_.find(open.call.tenant);
  const Tenant own = found == tenants_.end() ? Tenant() : found->second;
  const bool many = calls_.size() >= limits_.calls ||
                    waiting_bytes_ + open.bytes > limits_.waiting_bytes ||
                    own.n_calls >= limits_.calls / 4 * 3 || own.bytes + open.bytes > most_bytes;
  if (many) {
    return Error{
        ErrorCode::kResourceExhausted,
        fmt::format("too many {} wait to be encoded, of one key or of all: try again later",
                    kind())};
  }
  const int64_t held = held_bytes_->load() + waiting_row_bytes_;
  if (held + open.row_bytes <= limits_.row_bytes) return {};
  return Error{
      ErrorCode::kResourceExhausted,
      fmt::format("{} of running requests take {} MiB, these would take {} MiB more of {}: "
                  "try again later",
                  kind(), held >> 20, open.row_bytes >> 20, limits_.row_bytes >> 20)};
}

Result<uint64_t> Eyes::submit(Call call, Done done) {
  Open open{.call = std::move(call), .done = std::move(done)};
  open.rows.reserve(open.call.pictures.size());
  std::unique_lock lock(mutex_);
  if (stopping_) return make_error(ErrorCode::kCancelled, "this server stops");
  for (const PlannedPicture& planned : open.call.pictures) {
    open.bytes += planned.picture.bytes();
    auto kept = find_kept(planned);
    if (kept == nullptr) open.row_bytes += row_bytes_of(planned);
    open.rows.push_back(std::move(kept));
  }
  open.id = ++last_id_;
  if (open.row_bytes == 0) {  // all of them are kept
    lock.unlock();
    open.done(std::move(open.rows));
    return open.id;
  }
  open.rows.clear();
  if (auto error = why_over(open)) return tl::unexpected(*std::move(error));
  calls_.push_back(std::move(open));
  Open& added = calls_.back();
  try {
    Tenant& tenant =
        tenants_.try_emplace(added.call.tenant, Tenant{.last_turn = n_turns_}).first->second;
    ++tenant.n_calls, tenant.bytes += added.bytes;
  } catch (...) {
    calls_.pop_back();
    throw;
  }
  waiting_bytes_ += added.bytes, waiting_row_bytes_ += added.row_bytes;
  wake_.notify_one();
  return added.id;
}

void Eyes::cancel(uint64_t id) {
  const std::lock_guard lock(mutex_);
  const auto open = std::ranges::find(calls_, id, &Open::id);
  if (open != calls_.end()) open->cancelled.request_stop();
  wake_.notify_one();
}

Result<PictureRows> Eyes::encode(Call call, const std::function<bool()>& should_stop) {
  auto result = std::make_shared<std::promise<Result<PictureRows>>>();
  auto future = result->get_future();
  ASSIGN_OR_RETURN(const uint64_t id, submit(std::move(call), [result](Result<PictureRows> rows) {
                     result->set_value(std::move(rows));
                   }));
  while (should_stop && future.wait_for(std::chrono::milliseconds(50)) != std::future_status::ready)
    if (should_stop()) cancel(id);
  return future.get();
}

void Eyes::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    for (Open& open : calls_) open.cancelled.request_stop();
    wake_.notify_one();
  }
  const std::lock_guard joining(joining_);
  if (thread_.joinable()) thread_.join();
}

// Whether a call would begin a sound while those that were begun take too many bytes.
bool Eyes::must_wait(const Open& open, size_t spectra_bytes) const {
  if (spectra_bytes <= limits_.spectra_bytes || open.rows.size() == open.call.pictures.size())
    return false;
  return open.call.pictures[open.rows.size()].picture.is_sound && open.begun.sound == nullptr;
}

// Returns a call that is over, or the first that need not wait (there is one) of the tenant whose turn is longest ago.
std::list<Eyes::Open>::iterator Eyes::next_call() {
  size_t spectra_bytes = 0;
  for (const Open& open : calls_)
    if (open.begun.sound != nullptr) spectra_bytes += open.begun.sound->waiting_bytes();
  auto best = calls_.end();
  const auto turn_of = [&](auto open) { return tenants_.at(open->call.tenant).last_turn; };
  for (auto open = calls_.begin(); open != calls_.end(); ++open) {
    const bool is_over = open->call.deadline && Clock::now() >= *open->call.deadline;
    if (is_over || open->cancelled.stop_requested()) return open;
    if (must_wait(*open, spectra_bytes)) continue;
    if (best == calls_.end() || turn_of(open) < turn_of(best)) best = open;
  }
  return best;
}

void Eyes::finish(std::list<Open>::iterator open, Result<PictureRows> result,
                  std::unique_lock<std::mutex>& lock) {
  const Done done = std::move(open->done);
  const auto tenant = tenants_.find(open->call.tenant);
  tenant->second.bytes -= open->bytes;
  if (--tenant->second.n_calls == 0) tenants_.erase(tenant);
  waiting_bytes_ -= open->bytes, waiting_row_bytes_ -= open->row_bytes;
  calls_.erase(open);
  lock.unlock();
  done(std::move(result));
  lock.lock();
}

void Eyes::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stopping_ || !calls_.empty(); });
    if (calls_.empty()) return;
    const auto open = next_call();
    try {
      take_turn(open, lock);
    } catch (const std::bad_alloc&) {  // the call has not ended
      finish(open, out_of_memory(), lock);
    }
  }
}

// Encodes one picture, one view of a video or some of a sound. Throws std::bad_alloc before the call ends.
void Eyes::take_turn(std::list<Open>::iterator open, std::unique_lock<std::mutex>& lock) {
  const Call& call = open->call;
  const GoesOn goes_on = [&, stop = open->cancelled.get_token()]() -> Status {
    if (stop.stop_requested()) return make_error(ErrorCode::kCancelled, "cancelled");
    if (call.deadline && Clock::now() >= *call.deadline)
      return make_error(ErrorCode::kDeadlineExceeded, "the time for this request is over");
    return {};
  };
  Status status = goes_on();
  if (!status) return finish(open, tl::unexpected(std::move(status).error()), lock);
  if (open->rows.size() == call.pictures.size()) return finish(open, std::move(open->rows), lock);
  tenants_.at(call.tenant).last_turn = ++n_turns_;
  auto rows = next_rows_locked(*open, goes_on, lock);
  if (!rows) return finish(open, tl::unexpected(std::move(rows).error()), lock);
  if (*rows != nullptr) open->rows.push_back(*std::move(rows));  // there is room
  if (open->rows.size() == call.pictures.size()) finish(open, std::move(open->rows), lock);
}

// Looks up kept rows and keeps new ones with the lock, and computes without it. Only the encoding
// thread erases calls, so that the picture stays.
Result<std::shared_ptr<const EmbeddingRows>> Eyes::next_rows_locked(
    Open& open, const GoesOn& goes_on, std::unique_lock<std::mutex>& lock) {
  const PlannedPicture& picture = open.call.pictures[open.rows.size()];
  if (auto kept = find_kept(picture)) {
    open.begun.clear();
    return kept;
  }
  lock.unlock();
  auto rows = rows_of(picture, open.begun, goes_on);
  lock.lock();
  if (rows && *rows != nullptr) keep(*rows);
  return rows;
}

std::shared_ptr<const EmbeddingRows> Eyes::find_kept(const PlannedPicture& picture) {
  const auto found = index_.find(picture.identity);
  if (found == index_.end()) return nullptr;
  kept_.splice(kept_.begin(), kept_, found->second);
  return found->second->rows;
}

// Without memory for the list, nothing is kept.
void Eyes::keep(const std::shared_ptr<const EmbeddingRows>& rows) {
  const auto size_of = [](const EmbeddingRows& one) { return one.values.size() * sizeof(float); };
  try {
    kept_.push_front({rows->identity, rows});
    index_[rows->identity] = kept_.begin();
    kept_bytes_ += size_of(*rows);
  } catch (const std::bad_alloc&) {
    kept_.clear(), index_.clear(), kept_bytes_ = 0;
  }
  while (kept_bytes_ > limits_.cache_bytes && !kept_.empty()) {
    kept_bytes_ -= size_of(*kept_.back().rows);
    index_.erase(kept_.back().identity);
    kept_.pop_back();
  }
}

Result<bool> Eyes::add_views(const PlannedPicture& planned, Begun& begun, const GoesOn& goes_on) {
  const Picture& picture = planned.picture;
  if (picture.video != nullptr) {
    if (!begun.video) begun.video.emplace(*picture.video, planned.plan, limits_.image);
    RETURN_IF_ERROR(add_view(planned, *begun.video, goes_on));
    return begun.video->complete();
  }
  if (!picture.is_sound) return true;
  if (!begun.sound) begun.sound = std::make_unique<SoundRows>(*ear_, *ear_encoder_, picture);
  RETURN_IF_ERROR(begun.sound->advance(goes_on));
  return begun.sound->complete();
}

Result<std::shared_ptr<const EmbeddingRows>> Eyes::rows_of(const PlannedPicture& picture,
                                                           Begun& begun, const GoesOn& goes_on) {
  try {
    const Result<bool> all = add_views(picture, begun, goes_on);
    if (!all) return at_place(picture.picture, all.error());
    if (!*all) return nullptr;
    Result<EmbeddingRows> rows = compute(picture, begun, goes_on);
    if (!rows) return at_place(picture.picture, std::move(rows).error());
    rows->identity = picture.identity;
    rows->finite = std::ranges::all_of(rows->values, [](float x) { return std::isfinite(x); });
    const auto bytes = static_cast<int64_t>(rows->values.size() * sizeof(float));
    auto own = std::make_unique<const EmbeddingRows>(*std::move(rows));
    held_bytes_->fetch_add(bytes);  // the deleter is called, too, if there is no memory for it
    return std::shared_ptr<const EmbeddingRows>(
        own.release(), [held = held_bytes_, bytes](const EmbeddingRows* gone) {
          delete gone;  // NOLINT: a deleter
          held->fetch_sub(bytes);
        });
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  }
}

Result<EmbeddingRows> Eyes::compute_picture(const PlannedPicture& planned, const GoesOn& goes_on) {
  ASSIGN_OR_RETURN(const Image image, decode_image(bytes_of(planned.picture), limits_.image));
  RETURN_IF_ERROR(goes_on());
  const ImageProcessor& processor = planned.processor != nullptr ? *planned.processor : *processor_;
  ASSIGN_OR_RETURN(const ProcessedImage processed, processor.process(image));
  std::vector<PicturePixels> views;
  std::span<const float> rest = processed.pixels;
  for (const ImageView& view : processed.plan.views) {
    const size_t n =
        processed.layout == PixelLayout::kPatches
            ? static_cast<size_t>(view.grid_h) * static_cast<size_t>(view.grid_w) *
                  static_cast<size_t>(processed.patch_dim)
            : size_t{3} * static_cast<size_t>(view.height) * static_cast<size_t>(view.width);
    views.push_back(view_of(view, processed.layout, rest.first(n)));
    rest = rest.subspan(n);
  }
  ASSIGN_OR_RETURN(EmbeddingRows rows, encoder_->encode(views, goes_on));
  const StitchedGrid& grid = processed.plan.stitched;
  if (grid.rows == 0 && !grid.newline_behind) return rows;
  return stitched(rows, processed.plan, encoder_->newline());
}

Status Eyes::add_view(const PlannedPicture& planned, VideoRows& video, const GoesOn& goes_on) {
  if (video.complete()) return {};
  const VideoProcessor& processor =
      planned.video_processor != nullptr ? *planned.video_processor : *videos_;
  const ImageView& view = video.view();
  ASSIGN_OR_RETURN(const std::vector<Image> frames, video.frames());
  const std::vector<float> pixels = processor.pixels(view, frames);
  const PicturePixels seen = view_of(view, processor.layout(), pixels);
  ASSIGN_OR_RETURN(EmbeddingRows rows, encoder_->encode({&seen, 1}, goes_on));
  return video.add(std::move(rows));
}

// Returns the rows of a picture. REQUIRES: all views of a video or a sound are encoded.
Result<EmbeddingRows> Eyes::compute(const PlannedPicture& planned, Begun& begun,
                                    const GoesOn& goes_on) {
  EmbeddingRows rows;
  if (begun.video) rows = begun.video->joined(encoder_->newline());
  if (begun.sound != nullptr) rows = begun.sound->take(info_.embedding_levels);
  if (!begun.video && begun.sound == nullptr) {
    ASSIGN_OR_RETURN(rows, compute_picture(planned, goes_on));
  }
  begun.clear();
  if (rows.n_rows == planned.plan.n_soft) return rows;
  return errorf(ErrorCode::kUnsupported,
                "expected {} rows of the tower for its tokens in the prompt, got {}",
                planned.plan.n_soft, rows.n_rows);
}

}  // namespace penstock
