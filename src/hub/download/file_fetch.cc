#include "hub/download/file_fetch.h"

#include <algorithm>

#include "hub/small_json.h"

namespace penstock {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr int64_t kPartBytes = int64_t{32} << 20;
constexpr int64_t kHashBytes = int64_t{16} << 20;  // hashed between two polls of the network
constexpr milliseconds kLockPause{200};

int64_t number_at(std::string_view& text) {
  int64_t value = -1;
  while (!text.empty() && text.front() >= '0' && text.front() <= '9' &&
         value < (int64_t{1} << 55)) {
    value = std::max<int64_t>(value, 0) * 10 + (text.front() - '0');
    text.remove_prefix(1);
  }
  return value;
}

struct ContentRange {
  ByteRange range;
  int64_t total = -1;  // -1: "*"
};

// Parses "bytes 0-99/1000"; nothing if the text has another form.
std::optional<ContentRange> parse_content_range(std::string_view text) {
  if (!text.starts_with("bytes ")) return std::nullopt;
  text.remove_prefix(6);
  ContentRange content;
  content.range.begin = number_at(text);
  if (!text.starts_with('-')) return std::nullopt;
  text.remove_prefix(1);
  content.range.end = number_at(text) + 1;
  if (!text.starts_with('/')) return std::nullopt;
  text.remove_prefix(1);
  if (text != "*") content.total = number_at(text);
  return content;
}

}  // namespace

class FileFetch::Question : public HttpReceiver {
 public:
  explicit Question(FileFetch& file) : file_(file) {}
  bool on_answer(const HttpAnswer&) override { return true; }
  bool on_data(std::span<const std::byte>) override { return false; }
  void on_end(const HttpAnswer& answer) override { file_.on_description(answer); }
  HttpClient::Id id = 0;

 private:
  FileFetch& file_;
};

class FileFetch::Part : public HttpReceiver {
 public:
  Part(FileFetch& file, ByteRange r) : range(r), at(r.begin), file_(file) {}
  bool on_answer(const HttpAnswer& answer) override { return file_.accept(*this, answer); }
  bool on_data(std::span<const std::byte> data) override { return file_.take(*this, data); }
  void on_end(const HttpAnswer& answer) override { file_.on_part_end(*this, answer); }

  ByteRange range;
  int64_t at;             // offset of the next byte
  bool accepted = false;  // the answer has the requested range
  HttpClient::Id id = 0;

 private:
  FileFetch& file_;
};

FileFetch::FileFetch(FetchContext& context, RepoFile file)
    : context_(context), file_(std::move(file)), size_(std::max<int64_t>(file_.size, 0)) {}

FileFetch::~FileFetch() {
  if (question_) context_.client.cancel(question_->id);
  for (const auto& part : parts_) context_.client.cancel(part->id);
}

std::string FileFetch::shown() const {
  return fmt::format("{}/{}", context_.repo, printable(file_.path));
}

int64_t FileFetch::received() const {
  if (done()) return size_;
  return blob_ ? blob_->received().total() : 0;
}

void FileFetch::set_error(Error error) {
  if (!error_) error_ = std::move(error);
}

void FileFetch::failed(const HttpAnswer& answer) {
  const auto delay = retry_delay(answer, ++n_failures_);
  if (!delay)
    return set_error(context_.api.error_of(answer, context_.repo, "file " + printable(file_.path)));
  not_before_ = steady_clock::now() + *delay;
  note_ = answer.failure == HttpAnswer::Failure::kNone
              ? fmt::format("{}: the server answered {}, waiting", file_.path, answer.status)
              : fmt::format("{}: {}, trying again", file_.path, answer.problem);
}

bool FileFetch::step(int n_free) {
  bool more = false;
  Status status;
  if (state_ == State::kAsk && n_free > 0 && steady_clock::now() >= not_before_) ask();
  if (state_ == State::kLock && steady_clock::now() >= not_before_) status = try_lock();
  if (status && state_ == State::kReceive) status = receive(n_free, more);
  if (!status) set_error(status.error());
  return more;
}

// --- Metadata of the file.

void FileFetch::ask() {
  state_ = State::kAsking;
  question_ = std::make_unique<Question>(*this);
  question_->id = context_.client.start(
      {.url = context_.api.file_url(context_.repo, context_.commit, file_.path),
       .head = true,
       .leave_origin = false,
       .silence = context_.settings.metadata_timeout},
      *question_);
}

void FileFetch::on_description(const HttpAnswer& answer) {
  state_ = State::kAsk;
  const bool good =
      answer.failure == HttpAnswer::Failure::kNone && answer.status >= 200 && answer.status < 400;
  if (!good) return failed(answer);
  auto remote = read_remote_file(answer);
  const Status taken =
      remote ? take_description(std::move(*remote)) : Status(tl::unexpected(remote.error()));
  if (!taken) return set_error(taken.error());
  note_.clear();
  state_ = blob_ ? State::kReceive : State::kLock;
}

Status FileFetch::take_description(RemoteFile remote) {
  if (remote.size < 0) remote.size = file_.size;
  if (remote.size < 0)
    return errorf(ErrorCode::kCorruptFile, "{}: the server does not say how long it is", shown());
  if (file_.size >= 0 && remote.size != file_.size) {
    return errorf(ErrorCode::kCorruptFile, "{}: expected {} bytes by the list of files, got {}",
                  shown(), file_.size, remote.size);
  }
  if (blob_ && remote.etag != remote_.etag)
    return errorf(ErrorCode::kCorruptFile, "{}: changed on the server, expected {}, got {}",
                  shown(), remote_.etag, remote.etag);
  remote_ = std::move(remote);
  size_ = remote_.size;
  return {};
}

Checksum FileFetch::expected_checksum() const {
  Checksum checksum = checksum_of_etag(remote_.etag);
  if (checksum.kind != Checksum::Kind::kNone) return checksum;
  return checksum_of_etag(file_.lfs_sha256.empty() ? file_.blob_id : file_.lfs_sha256);
}

// --- The file's blob.

Status FileFetch::try_lock() {
  if (context_.writer.has_blob(remote_.etag, size_)) return into_snapshot();
  ASSIGN_OR_RETURN(lock_, FileLock::try_lock(context_.writer.lock_path(remote_.etag)));
  if (!lock_) {
    note_ = fmt::format("{}: waiting for another process that receives it", file_.path);
    not_before_ = steady_clock::now() + kLockPause;
    return {};
  }
  note_.clear();
  if (context_.writer.has_blob(remote_.etag, size_)) return into_snapshot();
  ASSIGN_OR_RETURN(PartialBlob blob, PartialBlob::open(context_.writer.blob_path(remote_.etag),
                                                       size_, expected_checksum()));
  blob_.emplace(std::move(blob));
  state_ = State::kReceive;
  return {};
}

Status FileFetch::into_snapshot() {
  RETURN_IF_ERROR(context_.writer.link(file_.path, remote_.etag));
  lock_.reset();
  note_.clear();
  state_ = State::kDone;
  return {};
}

Status FileFetch::receive(int& n_free, bool& more) {
  blob_->keep(false);
  if (!blob_->complete() && steady_clock::now() >= not_before_) start_parts(n_free);
  ASSIGN_OR_RETURN(const bool hashed, blob_->hash_some(kHashBytes));
  more = !hashed;
  if (blob_->complete() && hashed && parts_.empty()) return finish();
  if (blob_->complete()) note_ = fmt::format("{}: checking", file_.path);
  return {};
}

Status FileFetch::finish() {
  const bool resumed = blob_->resumed();
  const Status finished = blob_->finish();
  if (finished) {
    blob_.reset();
    return into_snapshot();
  }
  if (finished.error().code != ErrorCode::kCorruptFile) return finished;
  // Bytes from an earlier run may be damaged: restarts once.
  if (resumed && !rechecked_) {
    rechecked_ = true;
    return {};
  }
  blob_->discard();
  return errorf(ErrorCode::kCorruptFile, "{}: wrong content: {}", shown(),
                finished.error().message);
}

// --- Content of the file.

void FileFetch::start_parts(int& n_free) {
  RangeSet covered = blob_->received();
  for (const auto& part : parts_) covered.add(part->range);
  for (const ByteRange& gap : covered.gaps(size_)) {
    for (int64_t at = gap.begin; at < gap.end && n_free > 0; at += kPartBytes, --n_free) {
      const ByteRange range =
          whole_ ? ByteRange{0, size_} : ByteRange{at, std::min(at + kPartBytes, gap.end)};
      parts_.push_back(std::make_unique<Part>(*this, range));
      HubRequest request{.url = remote_.location, .silence = context_.settings.transfer_timeout};
      if (range.size() < size_) {
        request.begin = range.begin;
        request.end = range.end;
      }
      parts_.back()->id = context_.client.start(std::move(request), *parts_.back());
      if (whole_) return;
    }
  }
}

// Checks that an answer has the requested bytes.
Status FileFetch::check_answer(const Part& part, const HttpAnswer& answer) {
  if (const std::string_view encoding = answer.header("content-encoding");
      !encoding.empty() && encoding != "identity")
    return errorf(ErrorCode::kCorruptFile, "{}: expected it as it is, got it encoded as {}",
                  shown(), printable(encoding));
  if (answer.status == 200) {
    std::string_view length = answer.header("content-length");
    const int64_t bytes = length.empty() ? size_ : number_at(length);
    if (bytes == size_) return {};
    return errorf(ErrorCode::kCorruptFile, "{}: expected {} bytes, got {}", shown(), size_, bytes);
  }
  const auto content = parse_content_range(answer.header("content-range"));
  const bool fits = content && content->range.begin == part.range.begin &&
                    content->range.end <= part.range.end &&
                    (content->total < 0 || content->total == size_);
  if (fits) return {};
  return errorf(ErrorCode::kCorruptFile, "{}: expected bytes {}-{}/{}, got {}", shown(),
                part.range.begin, part.range.end - 1, size_,
                printable(answer.header("content-range")));
}

bool FileFetch::accept(Part& part, const HttpAnswer& answer) {
  const bool asked_for_range = part.range.size() < size_;
  if (answer.status != 206 && (answer.status != 200 || asked_for_range)) return false;
  if (const Status fits = check_answer(part, answer); !fits) {
    set_error(fits.error());
    return false;
  }
  part.accepted = true;
  return true;
}

bool FileFetch::take(Part& part, std::span<const std::byte> data) {
  if (static_cast<int64_t>(data.size()) > part.range.end - part.at) {
    set_error({ErrorCode::kCorruptFile,
               fmt::format("{}: expected {} bytes, got more", shown(), part.range.size())});
    return false;
  }
  if (const Status written = blob_->write(part.at, data); !written) {
    set_error(written.error());
    return false;
  }
  part.at += static_cast<int64_t>(data.size());
  if (blob_->received().total() > most_) {
    most_ = blob_->received().total();
    n_failures_ = 0;
  }
  note_.clear();
  return true;
}

void FileFetch::restart_whole() {
  for (const auto& part : parts_) context_.client.cancel(part->id);
  parts_.clear();
  if (const Status restarted = blob_->restart(); !restarted) set_error(restarted.error());
}

void FileFetch::on_part_end(Part& ended, HttpAnswer answer) {
  const bool accepted = ended.accepted, short_of = ended.at < ended.range.end;
  const bool asked_for_range = ended.range.size() < size_;
  parts_.remove_if([&](const auto& part) { return part.get() == &ended; });
  if (error_) return;
  if (answer.failure == HttpAnswer::Failure::kStopped)
    answer.failure = HttpAnswer::Failure::kNone;  // judged by its status
  if (answer.failure == HttpAnswer::Failure::kNone && accepted && !short_of) return;
  if (accepted && answer.failure == HttpAnswer::Failure::kNone) {
    answer.failure = HttpAnswer::Failure::kBroken;
    answer.problem = "ended early";
  }
  const bool no_ranges =
      answer.failure == HttpAnswer::Failure::kNone && answer.status == 200 && asked_for_range;
  if ((no_ranges && !whole_) || (answer.status == 416 && !restarted_)) {
    whole_ |= no_ranges;
    restarted_ = true;
    return restart_whole();
  }
  if (whole_) restart_whole();
  failed(answer);
  // Signed URLs expire: the hub is asked for a new one.
  const bool expired =
      answer.status == 401 || answer.status == 403 || answer.status == 404 || answer.status == 410;
  if (answer.failure == HttpAnswer::Failure::kNone && expired && n_failures_ <= 3 &&
      remote_.location != context_.api.file_url(context_.repo, context_.commit, file_.path)) {
    error_.reset();
    not_before_ = {};
    state_ = State::kAsk;
  }
}

}  // namespace penstock
