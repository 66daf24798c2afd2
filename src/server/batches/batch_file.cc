#include "server/batches/batch_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/regular_file.h"
#include "server/services/served_models.h"
#include "server/services/services.h"

namespace penstock {
namespace {

// interval of progress reports and syncs
constexpr auto kTell = std::chrono::milliseconds(100);
constexpr int64_t kLongestLine = int64_t{64} << 20;  // bytes
constexpr int kLeastAtOnce = 64;                     // minimum for pooling models

tl::unexpected<Error> input_error(const std::string& path) {
  const ErrorCode code = errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo;
  return errorf(code, "{}: {}", path, std::strerror(errno));
}

std::string text_of(const std::string& path, const std::vector<BatchMistake>& mistakes) {
  std::string text =
      fmt::format("{}: {} of its lines cannot be computed", path,
                  mistakes.size() == kMostBatchMistakes ? "many" : std::to_string(mistakes.size()));
  for (const BatchMistake& one : mistakes)
    text += fmt::format("\n  line {}: {}", one.line, one.message);
  return text;
}

}  // namespace

struct BatchFile::Run {
  Run(Services& its_server, const std::function<bool(const Progress&)>& tell)
      : services(its_server), go_on(tell) {}

  Services& services;
  const std::function<bool(const Progress&)>& go_on;
  net::thread_pool thread{1};
  net::steady_timer news{thread};
  LineComputer lines{services, thread.get_executor()};
  int n_under_way = 0;
  bool ending = false;
  std::optional<Error> failure;
};

Result<std::unique_ptr<BatchFile>> BatchFile::open(const std::string& input,
                                                   const std::string& output) {
  std::unique_ptr<BatchFile> batch(new BatchFile);
  batch->input_ = input;
  ASSIGN_OR_RETURN(batch->file_, open_regular_file(input));
  RETURN_IF_ERROR(batch->read_input());
  if (!batch->mistakes_.empty())
    return errorf(ErrorCode::kInvalidArgument, "{}", text_of(input, batch->mistakes_));
  if (batch->places_.empty())
    return errorf(ErrorCode::kInvalidArgument, "{}: expected at least one line", input);
  std::error_code absent;
  if (std::filesystem::equivalent(input, output, absent))
    return errorf(ErrorCode::kInvalidArgument, "{}: the output is the input", output);
  ASSIGN_OR_RETURN(batch->results_, BatchResults::open(output, output));
  RETURN_IF_ERROR(batch->check_results());
  return batch;
}

Status BatchFile::take_line(std::string_view text, int64_t begin, int64_t number) {
  if (text.find_first_not_of(" \t\r") == std::string_view::npos) return {};
  auto line = read_batch_line(text, "");
  if (line && !ids_.insert(line->custom_id).second) line = tl::unexpected(twice(line->custom_id));
  if (line) {
    places_.push_back({begin, static_cast<int64_t>(text.size())});
  } else if (mistakes_.size() < kMostBatchMistakes) {
    line.error().line = number;
    mistakes_.push_back(std::move(line.error()));
  }
  return {};
}

Status BatchFile::read_input() {
  std::string rest;   // start of a line from the last read
  int64_t begin = 0;  // offset of `rest` in the file
  for (int64_t number = 1; mistakes_.size() < kMostBatchMistakes;) {
    constexpr size_t kPiece = size_t{1} << 20;
    const size_t before = rest.size();
    rest.resize(before + kPiece);
    const ssize_t n = ::pread(file_.number(), rest.data() + before, kPiece,
                              static_cast<off_t>(begin) + static_cast<off_t>(before));
    rest.resize(before + static_cast<size_t>(std::max<ssize_t>(n, 0)));
    if (n < 0 && errno != EINTR) return input_error(input_);
    if (n == 0) return rest.empty() ? Status() : take_line(rest, begin, number);
    size_t done = 0;
    for (size_t end = rest.find('\n', before); end != std::string::npos;
         end = rest.find('\n', done), ++number) {
      RETURN_IF_ERROR(take_line(std::string_view(rest).substr(done, end - done),
                                begin + static_cast<int64_t>(done), number));
      done = end + 1;
    }
    rest.erase(0, done);
    begin += static_cast<int64_t>(done);
    if (static_cast<int64_t>(rest.size()) > kLongestLine)
      return errorf(ErrorCode::kInvalidArgument, "{}: line {}: longer than {} bytes", input_,
                    number, kLongestLine);
  }
  return {};
}

// Refuses an output with results of another input.
Status BatchFile::check_results() const {
  for (const std::string& id : results_->done()) {
    if (!ids_.contains(id))
      return errorf(ErrorCode::kInvalidArgument, "{}: has a result of {}, which is no line of {}",
                    results_->path(false).string(), id, input_);
  }
  return {};
}

BatchFile::Progress BatchFile::progress() const {
  return {static_cast<int64_t>(places_.size()), results_->n_completed(), results_->n_failed(),
          n_tokens_};
}

Result<BatchLine> BatchFile::line_at(const Place& place) const {
  std::string text(static_cast<size_t>(place.bytes), '\0');
  if (::pread(file_.number(), text.data(), text.size(), static_cast<off_t>(place.begin)) !=
      place.bytes)
    return errorf(ErrorCode::kIo, "{}: it is shorter than at the start", input_);
  auto line = read_batch_line(text, "");
  if (!line)
    return errorf(ErrorCode::kIo, "{}: byte {}: it has changed: {}", input_, place.begin,
                  line.error().message);
  return *std::move(line);
}

Status BatchFile::run(Services& services, const std::function<bool(const Progress&)>& go_on) {
  Run run(services, go_on);
  net::co_spawn(run.thread, run_lines(run), net::use_future).get();
  run.thread.join();
  if (run.failure) return tl::unexpected(*run.failure);
  return results_->sync();
}

// As many lines as the engine runs at once, plus some in its queue.
static int lines_at_once(const Services& services) {
  int most = 1;
  for (const auto& model : services.models.all()) {
    const ModelLease lease = model->lease();
    if (lease == nullptr) continue;
    most = std::max(most, lease->pools() ? kLeastAtOnce : lease->config().max_num_seqs);
  }
  return most + most / 4 + 1;
}

net::awaitable<void> BatchFile::run_lines(Run& run) {
  const int at_once = lines_at_once(run.services);
  size_t next = 0;
  auto told = std::chrono::steady_clock::now();
  while (next < places_.size() || run.n_under_way > 0) {
    for (; next < places_.size() && run.n_under_way < at_once && !run.ending; ++next) {
      ++run.n_under_way;
      net::co_spawn(run.thread, run_line(run, places_[next]), net::detached);
    }
    if (run.ending && run.n_under_way == 0) break;
    run.news.expires_after(kTell);
    boost::system::error_code woken;
    co_await run.news.async_wait(net::redirect_error(net::use_awaitable, woken));
    const auto now = std::chrono::steady_clock::now();
    if (now - told < kTell && !run.failure) continue;
    told = now;
    if (const Status synced = results_->sync(); !synced) run.failure = synced.error();
    if ((run.failure || !run.go_on(progress())) && !std::exchange(run.ending, true))
      run.lines.give_up();
  }
}

net::awaitable<void> BatchFile::run_line(Run& run, Place place) {
  auto line = line_at(place);
  if (!line) {
    run.failure = line.error();
  } else if (!results_->has(line->custom_id)) {
    HttpRequest request;
    request.peer = "run-batch";
    const auto wanted = [&] { return !run.ending && !run.failure; };
    if (const auto result = co_await run.lines.compute(*line, std::move(request), wanted)) {
      n_tokens_ += result->n_tokens;
      if (const Status kept = results_->append(result->failed, line->custom_id, result->text);
          !kept)
        run.failure = kept.error();
    }
  }
  --run.n_under_way;
  run.news.cancel();
}

}  // namespace penstock
