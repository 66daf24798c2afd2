// Pictures of a model that sees: the tokens of each in the prompt, and the rows that the tower makes
// of it. One thread encodes for all requests and keeps the rows of the last pictures, which are not
// encoded again when they come again.
//
// A model that hears has an ear in their place, or beside them: the same of sounds.
//
// Thread-safe.
#pragma once
#include <atomic>
#include <condition_variable>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>

#include "engine/open/picture_encoder.h"
#include "frontend/pictures/ear.h"
#include "frontend/pictures/picture.h"
#include "frontend/pictures/picture_prompt.h"
#include "frontend/pictures/sound_rows.h"
#include "frontend/pictures/video_frames.h"

namespace penstock {

// Returns the errors of two senses, none of which can be used, as one.
inline Error error_of_both(Error sight, const Error& hearing) {
  if (sight.message != hearing.message)
    sight.message = fmt::format("pictures: {}; sounds: {}", sight.message, hearing.message);
  return sight;
}

class Eyes {
 public:
  struct Limits {
    ImageLimits image;
    SoundLimits sound;
    size_t pictures = 64;                    // of a request, videos too
    size_t frames = 2048;                    // of a request's videos
    size_t calls = 4096;                     // that wait
    size_t waiting_bytes = size_t{1} << 30;  // of files of calls that wait
    size_t cache_bytes = size_t{256} << 20;  // of kept rows
    // Bytes of samples and spectra of the sounds under way. Beyond it no further sound is begun.
    size_t spectra_bytes = size_t{256} << 20;
    // Bytes of all rows at once: of requests that run or wait, and of kept rows. 0: a quarter of the
    // machine's memory.
    int64_t row_bytes = 0;
  };
  // A model's encoders of pictures and of sounds: null if it has none, or why one cannot be used.
  struct Towers {
    Result<std::unique_ptr<PictureEncoder>> sight = nullptr, hearing = nullptr;
  };
  // tower: what the encoders were opened on, the model itself, or another file or directory. model: its
  // processors are taken, or the tower's if it has none. Returns null without an encoder. A sense that
  // cannot be used leaves the other one as it is, and why_not() says why. Errors, where none is left:
  // kUnsupported (a tower, a processor or a field that is not known, by name), kInvalidArgument (the tower
  // of another model), kCorruptFile, kResourceExhausted.
  static Result<std::unique_ptr<Eyes>> open(Towers towers, const WeightSource& tower,
                                            const WeightSource& model, const EngineInfo& info,
                                            const Limits& limits);
  ~Eyes() { stop(); }

  const PicturePrompt& prompt() const { return prompt_; }
  const Limits& limits() const { return limits_; }
  bool sees() const { return processor_ != nullptr; }
  bool hears() const { return ear_ != nullptr; }
  bool watches() const { return videos_ != nullptr; }  // videos
  // Name of its input in messages.
  const char* kind() const {
    return !hears() ? "pictures" : sees() ? "pictures and sounds" : "sounds";
  }
  // Why a sense of the model cannot be used; "": it can, or the model does not have it.
  const std::string& why_not(bool hearing) const { return why_not_[hearing ? 1 : 0]; }
  // REQUIRES: hears().
  const Ear& ear() const { return *ear_; }
  // Plans a window of a sound (Ear::window()). where: for messages.
  PlannedPicture plan_window(SoundView window, std::string where) const;
  int64_t weight_bytes() const;
  // Bytes of rows in memory, of running requests and kept ones.
  int64_t row_bytes() const { return held_bytes_->load(); }
  // Reads the headers of pictures; nothing is decoded. settings: those of a request, which take
  // precedence over the model's (vLLM's mm_processor_kwargs); null: none. Errors, with the picture's
  // place: kInvalidArgument (over a limit, too), kUnsupported (also a setting that is not known, by
  // name).
  Result<std::vector<PlannedPicture>> plan(std::vector<Picture> pictures,
                                           const nlohmann::json& settings = {}) const;
  // See penstock::embeddings_of(); positions are those of the model.
  std::vector<PromptEmbeddings> embeddings_of(const PromptPictures& pictures,
                                              const PictureRows& rows) const;

  // Called once, on the encoding thread or, where all rows are kept, by submit(); throws nothing.
  // Errors: those of plan() for what only the pixels show, kCancelled, kDeadlineExceeded,
  // kResourceExhausted.
  using Done = std::function<void(Result<PictureRows>)>;
  struct Call {
    std::vector<PlannedPicture> pictures;
    std::optional<Clock::time_point> deadline;
    std::string tenant;  // pictures of different tenants take turns; one has 3/4 of the limits
  };
  // Returns an id for cancel(). Errors: kInvalidArgument (more than there may ever be),
  // kResourceExhausted (too many wait), kCancelled (after stop()).
  Result<uint64_t> submit(Call call, Done done);
  void cancel(uint64_t id);
  // Submits and waits. should_stop: asked about every 50 ms; true cancels the call.
  Result<PictureRows> encode(Call call, const std::function<bool()>& should_stop = {});
  // Ends every call.
  void stop();

 private:
  // Views of the next picture of a call that are encoded already, if it is a video or a sound.
  struct Begun {
    std::optional<VideoRows> video;
    std::unique_ptr<SoundRows> sound;

    void clear() { video.reset(), sound.reset(); }
  };
  struct Open {
    uint64_t id = 0;
    Call call;
    Done done;
    PictureRows rows;
    Begun begun;
    std::stop_source cancelled;
    size_t bytes = 0;       // of its files
    int64_t row_bytes = 0;  // of its rows that were not kept when it came
  };
  struct Tenant {
    uint64_t last_turn = 0;
    size_t n_calls = 0, bytes = 0;
  };
  struct Kept {
    std::array<uint64_t, 2> identity;
    std::shared_ptr<const EmbeddingRows> rows;
  };
  struct HashOfIdentity {
    size_t operator()(const std::array<uint64_t, 2>& identity) const { return identity[0]; }
  };
  // A sense of the model: the processor of its files, with their settings, and its tower.
  template <class Processor>
  struct Sense {
    ImageProcessorFiles files;
    std::unique_ptr<Processor> processor;
    std::unique_ptr<PictureEncoder> encoder;
  };
  struct Eye : Sense<ImageProcessor> {
    std::unique_ptr<VideoProcessor> videos;  // null: it takes none
    std::string no_videos;                   // why, where its processor cannot be used
  };
  using Hearing = Sense<Ear>;
  static Result<Eye> open_eye(std::unique_ptr<PictureEncoder> encoder, const WeightSource& tower,
                              const WeightSource& model, const EngineInfo& info);
  static Result<Hearing> open_ear(std::unique_ptr<PictureEncoder> encoder,
                                  const WeightSource& tower, const WeightSource& model,
                                  const EngineInfo& info, const Limits& limits);
  Eyes(Eye eye, Hearing hearing, const EngineInfo& info, const Limits& limits);
  // Processors of a request; null: the model's.
  struct Own {
    std::shared_ptr<const ImageProcessor> pictures;
    std::shared_ptr<const VideoProcessor> videos;
  };
  Result<Own> with_settings(const nlohmann::json& settings) const;
  Result<ImagePlan> plan_picture(const Picture& picture, const Own& own) const;
  Result<PlannedPicture> plan_one(Picture picture, const Own& own) const;
  void work();
  void take_turn(std::list<Open>::iterator open, std::unique_lock<std::mutex>& lock);
  int64_t row_bytes_of(const PlannedPicture& picture) const;
  std::optional<Error> why_over(const Open& open) const;
  bool must_wait(const Open& open, size_t spectra_bytes) const;
  std::list<Open>::iterator next_call();
  void finish(std::list<Open>::iterator open, Result<PictureRows> result,
              std::unique_lock<std::mutex>& lock);
  std::shared_ptr<const EmbeddingRows> find_kept(const PlannedPicture& picture);
  void keep(const std::shared_ptr<const EmbeddingRows>& rows);
  using GoesOn = std::function<Status()>;  // an error: the call has ended
  // Both return null while views of a video or a sound are missing.
  Result<std::shared_ptr<const EmbeddingRows>> rows_of(const PlannedPicture& picture, Begun& begun,
                                                       const GoesOn& goes_on);
  Result<std::shared_ptr<const EmbeddingRows>> next_rows_locked(Open& open, const GoesOn& goes_on,
                                                                std::unique_lock<std::mutex>& lock);
  Status add_view(const PlannedPicture& planned, VideoRows& video, const GoesOn& goes_on);
  // Returns whether all views are there.
  Result<bool> add_views(const PlannedPicture& planned, Begun& begun, const GoesOn& goes_on);
  Result<EmbeddingRows> compute(const PlannedPicture& picture, Begun& begun, const GoesOn& goes_on);
  Result<EmbeddingRows> compute_picture(const PlannedPicture& picture, const GoesOn& goes_on);

  const ImageProcessorFiles files_;  // of pictures
  // Null without this sense, with its encoder.
  const std::unique_ptr<ImageProcessor> processor_;
  const std::unique_ptr<VideoProcessor> videos_;  // null: it takes none, for this reason
  const std::string no_videos_;
  const std::unique_ptr<Ear> ear_;
  const std::unique_ptr<PictureEncoder> encoder_, ear_encoder_;
  const EngineInfo info_;
  const Limits limits_;
  const PicturePrompt prompt_;
  // Hashes of the files that say how pictures and sounds are processed.
  std::array<std::array<uint64_t, 2>, 2> settings_{};
  std::array<std::string, 2> why_not_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::list<Open> calls_;  // in the order of their arrival
  size_t waiting_bytes_ = 0;
  uint64_t last_id_ = 0;
  std::map<std::string, Tenant> tenants_;  // those with calls
  uint64_t n_turns_ = 0;
  bool stopping_ = false;
  int64_t waiting_row_bytes_ = 0;  // of calls_
  // Bytes of rows that somebody holds. Shared with the rows, which may outlive this.
  const std::shared_ptr<std::atomic<int64_t>> held_bytes_;
  std::mutex joining_;
  // Rows of the last pictures, the latest first.
  std::list<Kept> kept_;
  std::unordered_map<std::array<uint64_t, 2>, std::list<Kept>::iterator, HashOfIdentity> index_;
  size_t kept_bytes_ = 0;
  std::thread thread_;
};

}  // namespace penstock
