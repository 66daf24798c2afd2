#include "cli/options/model_download.h"

#include <algorithm>
#include <chrono>
#include <csignal>

#include "cli/console/terminal.h"

namespace penstock {
namespace {

// Makes SIGINT and SIGTERM set a flag during this object's lifetime, then restores the handlers.
class InterruptScope {
 public:
  InterruptScope() {
    sigaction(SIGINT, nullptr, &before_);
    sigaction(SIGTERM, nullptr, &before_term_);
    reset_interrupt();
    install_interrupt_handler();
    struct sigaction same = {};
    sigaction(SIGINT, nullptr, &same);
    sigaction(SIGTERM, &same, nullptr);
  }
  ~InterruptScope() {
    sigaction(SIGINT, &before_, nullptr);
    sigaction(SIGTERM, &before_term_, nullptr);
  }
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

 private:
  struct sigaction before_ = {}, before_term_ = {};
};

class DownloadDisplay {
 public:
  explicit DownloadDisplay(const std::string& name) : bar_(name) {}

  bool show(const PullProgress& progress) {
    if (progress.total > 0 && !announced_) announce(progress);
    bar_.update(progress.done, std::max<int64_t>(progress.total, 1), note(progress));
    return !interrupted();
  }

 private:
  using Clock = std::chrono::steady_clock;

  void announce(const PullProgress& progress) {
    announced_ = true;
    begin_ = Clock::now();
    first_ = progress.done;
    if (stderr_is_terminal() || progress.done == progress.total) return;
    fmt::print(stderr, "downloading {}: {} file{}, {}\n", progress.name, progress.n_files,
               progress.n_files == 1 ? "" : "s", format_bytes(static_cast<double>(progress.total)));
  }

  std::string note(const PullProgress& progress) const {
    if (!progress.note.empty() || progress.total == 0) return progress.note;
    const double seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
    const double rate = seconds > 0 ? static_cast<double>(progress.done - first_) / seconds : 0;
    std::string text = fmt::format("{} of {}", format_bytes(static_cast<double>(progress.done)),
                                   format_bytes(static_cast<double>(progress.total)));
    if (rate < 1) return text;
    return fmt::format("{}, {}/s, {:.0f} s left", text, format_bytes(rate),
                       static_cast<double>(progress.total - progress.done) / rate);
  }

  ProgressBar bar_;
  bool announced_ = false;
  Clock::time_point begin_;
  int64_t first_ = 0;  // bytes that had been downloaded before
};

using Way = Result<FoundModel> (*)(const HubSettings&, std::string_view, const PullObserver&);

Result<FoundModel> go(Way way, const std::string& name) {
  ASSIGN_OR_RETURN(const HubSettings settings, hub_settings());
  const InterruptScope scope;
  DownloadDisplay display(name);
  auto found =
      way(settings, name, [&](const PullProgress& progress) { return display.show(progress); });
  if (!found && found.error().code == ErrorCode::kCancelled) {
    return errorf(ErrorCode::kCancelled,
                  "{}: stopped; what was received is kept, and the next time goes on from there",
                  name);
  }
  return found;
}

}  // namespace

Result<FoundModel> find_or_download(const std::string& name) { return go(resolve_model, name); }
Result<FoundModel> download_newest(const std::string& name) { return go(pull_model, name); }

}  // namespace penstock
