#include "server/batches/store/batches.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "base/text_hash.h"
#include "frontend/random_id.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr const char* kBatchColumns =
    "SELECT id, owner, key, endpoint, input_file, window, metadata, errors, output_file, "
    "error_file, status, created, expires, since, total, completed, failed, payer FROM batches";

StoredBatch batch_of(const DatabaseRow& row) {
  StoredBatch batch;
  batch.id = row.text(0), batch.owner = row.text(1), batch.key = row.text(2);
  batch.endpoint = row.text(3), batch.input_file = row.text(4), batch.window = row.text(5);
  batch.metadata = row.text(6), batch.errors = row.text(7);
  batch.output_file = row.text(8), batch.error_file = row.text(9);
  batch.status =
      static_cast<BatchStatus>(std::clamp<int64_t>(row.integer(10), 0, kNumBatchStatuses - 1));
  batch.created = row.integer(11), batch.expires = row.integer(12);
  const auto since = bounded_json(row.text(13));
  for (size_t i = 0; since.is_array() && i < std::min<size_t>(since.size(), kNumBatchStatuses); ++i)
    batch.since[i] = since[i].is_number_integer() ? since[i].get<int64_t>() : 0;
  batch.total = row.integer(14), batch.completed = row.integer(15), batch.failed = row.integer(16);
  batch.payer = row.text(17);
  return batch;
}

// Lines of an input have a url.
bool is_result(const nlohmann::json& line) {
  return line.is_object() && line.contains("custom_id") && line["custom_id"].is_string() &&
         !line.contains("url");
}

tl::unexpected<Error> no_result(const fs::path& path, size_t place) {
  return errorf(ErrorCode::kCorruptFile, "{}: byte {}: expected a result", path.string(), place);
}

// Longest line of results, and so the most that is read of a file without a line end.
constexpr size_t kLongestResult = size_t{256} << 20;

// The unfinished line without the NUL bytes around it, which a power failure leaves where bytes were not
// written.
std::string_view written_of(std::string_view rest) {
  const size_t begin = std::min(rest.find_first_not_of('\0'), rest.size());
  return rest.substr(begin, rest.find_last_not_of('\0') + 1 - begin);
}

tl::unexpected<Error> batch_disk_error(const fs::path& path) {
  return errorf(ErrorCode::kIo, "{}: {}", path.string(), std::strerror(errno));
}

constexpr const char* kBatchInput = "batch";  // purpose

}  // namespace

const char* name_of(BatchStatus status) {
  static constexpr const char* kNames[kNumBatchStatuses] = {
      "validating", "in_progress", "finalizing", "completed",
      "failed",     "expired",     "cancelling", "cancelled"};
  return kNames[static_cast<int>(status)];
}

// --- results

Result<std::unique_ptr<BatchResults>> BatchResults::open(const fs::path& completed,
                                                         const fs::path& failed) {
  std::unique_ptr<BatchResults> results(new BatchResults);
  results->files_[0].path = completed;
  results->last_ = completed == failed ? 0 : 1;
  RETURN_IF_ERROR(results->read(results->files_[0]));
  if (results->last_ == 0) return results;
  results->files_[1].path = failed;
  RETURN_IF_ERROR(results->read(results->files_[1]));
  return results;
}

BatchResults::~BatchResults() {
  for (const File& file : files_) {
    if (file.descriptor >= 0) ::close(file.descriptor);
  }
}

Status BatchResults::take(const File& file, std::string_view text, size_t place) {
  const auto line = bounded_json(text);
  if (!is_result(line)) return no_result(file.path, place);
  done_.insert(line["custom_id"].get<std::string>());
  const auto response = line.find("response");
  const bool answered = response != line.end() && response->is_object() &&
                        response->contains("status_code") && (*response)["status_code"] == 200;
  const bool failed = last_ == 1 ? &file == &files_[1] : !answered;
  ++n_[failed ? 1 : 0];
  return {};
}

// Whether a line of this beginning may be a result, or NUL bytes behind results. A user's file that begins with
// NUL bytes is another program's.
bool BatchResults::may_begin_result(const File& file, std::string_view line) const {
  if (line.empty() || line[0] == '{') return true;
  return line[0] == '\0' && (last_ == 1 || file.bytes > 0);
}

Status BatchResults::read(File& file) {
  file.descriptor = ::open(file.path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file.descriptor < 0) return batch_disk_error(file.path);
  if (::flock(file.descriptor, LOCK_EX | LOCK_NB) != 0)
    return errorf(ErrorCode::kIo, "{}: another process writes it", file.path.string());
  std::string rest;  // start of a line from the last read
  for (int64_t place = 0;;) {
    constexpr size_t kPiece = size_t{1} << 20;
    const size_t before = rest.size();
    if (!may_begin_result(file, rest) || before > kLongestResult)
      return no_result(file.path, static_cast<size_t>(file.bytes));
    rest.resize(before + kPiece);
    const ssize_t n =
        ::pread(file.descriptor, rest.data() + before, kPiece, static_cast<off_t>(place));
    rest.resize(before + static_cast<size_t>(std::max<ssize_t>(n, 0)));
    if (n < 0 && errno != EINTR) return batch_disk_error(file.path);
    if (n == 0) break;
    place += std::max<ssize_t>(n, 0);
    size_t begin = 0;
    for (size_t end = rest.find('\n', before); end != std::string::npos;
         end = rest.find('\n', begin)) {
      RETURN_IF_ERROR(take(file, std::string_view(rest).substr(begin, end - begin),
                           static_cast<size_t>(file.bytes)));
      file.bytes += static_cast<int64_t>(end + 1 - begin);
      begin = end + 1;
    }
    rest.erase(0, begin);
  }
  file.ragged = !rest.empty();
  // The beginning of a result, or one without its end, and nothing else is cut off.
  const std::string_view written = written_of(rest);
  const auto whole = bounded_json(written);
  if (!written.empty() && (written[0] != '{' || (whole.is_object() && !is_result(whole))))
    return no_result(file.path, static_cast<size_t>(file.bytes));
  return {};
}

Status BatchResults::trim(File& file) {
  if (file.ragged && ::ftruncate(file.descriptor, file.bytes) != 0)
    return batch_disk_error(file.path);
  file.ragged = false;
  return {};
}

Status BatchResults::append(bool failed, const std::string& custom_id, std::string line) {
  File& file = files_[failed ? last_ : 0];
  if (line.size() > kLongestResult)
    return errorf(ErrorCode::kIo, "{}: a result of {} bytes: expected at most {}",
                  file.path.string(), line.size(), kLongestResult);
  line += '\n';
  RETURN_IF_ERROR(trim(file));
  for (size_t done = 0; done < line.size();) {
    const ssize_t n = ::pwrite(file.descriptor, line.data() + done, line.size() - done,
                               file.bytes + static_cast<int64_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      const auto error = batch_disk_error(file.path);
      (void)!::ftruncate(file.descriptor, file.bytes);
      return error;
    }
    done += static_cast<size_t>(n);
  }
  file.bytes += static_cast<int64_t>(line.size());
  file.dirty = true;
  done_.insert(custom_id);
  ++n_[failed ? 1 : 0];
  return {};
}

Status BatchResults::sync() {
  for (File& file : files_) {
    RETURN_IF_ERROR(trim(file));
    if (!std::exchange(file.dirty, false)) continue;
    if (::fdatasync(file.descriptor) != 0) return batch_disk_error(file.path);
  }
  return {};
}

// --- batches

Result<std::unique_ptr<StoredBatches>> StoredBatches::open(StoredFiles& files, BatchLimits limits) {
  std::error_code error;
  const fs::path folder = files.store().folder() / "batches";
  fs::create_directories(folder, error);
  if (error) return errorf(ErrorCode::kIo, "{}: {}", folder.string(), error.message());
  std::unique_ptr<StoredBatches> batches(new StoredBatches(files, limits));
  RETURN_IF_ERROR(batches->clear(folder));
  return batches;
}

// Cleans up result files after a crash: those of ended batches are linked as stored files, so these
// names are removed; those of unknown batches go to the quarantine.
Status StoredBatches::clear(const fs::path& folder) {
  TextMap<bool> has_ended;
  RETURN_IF_ERROR(database().run("SELECT id, ended FROM batches", {}, [&](const DatabaseRow& row) {
    has_ended[row.text(0)] = row.integer(1) != 0;
  }));
  std::error_code error;
  std::vector<fs::path> unknown, over;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename();
    const auto known = has_ended.find(name.substr(0, name.find('.')));
    if (known == has_ended.end())
      unknown.push_back(entry->path());
    else if (known->second)
      over.push_back(entry->path());
  }
  for (const fs::path& path : over) fs::remove(path, error);
  return files_.store().put_aside(unknown);
}

Result<StoredBatch> StoredBatches::add(StoredBatch batch, int64_t window_seconds) {
  ASSIGN_OR_RETURN(const StoredFile input, files_.find(batch.owner, batch.input_file));
  // Results may be larger than any upload, and an input is read as a whole.
  if (input.purpose != kBatchInput) {
    return errorf(ErrorCode::kInvalidArgument,
                  "input_file_id: expected a file of purpose {}, {} is of {}", kBatchInput,
                  input.id, input.purpose);
  }
  if (const Status room = files_.check_room(batch.owner, 0); !room) {
    return errorf(ErrorCode::kInvalidArgument, "there is no room for results: {}",
                  room.error().message);
  }
  batch.id = random_id("batch_");
  batch.created = std::time(nullptr);
  batch.expires = batch.created + window_seconds;
  batch.since[static_cast<size_t>(batch.status)] = batch.created;
  RETURN_IF_ERROR(database().transact([&]() -> Status {
    RETURN_IF_ERROR(check_room(batch.owner));
    RETURN_IF_ERROR(database().run(
        "INSERT INTO batches (id, owner, key, endpoint, input_file, window, metadata, created, "
        "expires, payer) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        {batch.id, batch.owner, batch.key, batch.endpoint, batch.input_file, batch.window,
         batch.metadata, batch.created, batch.expires, batch.payer}));
    return write(batch);
  }));
  return batch;
}

// Checks that the owner may add a batch.
Status StoredBatches::check_room(const std::string& owner) {
  int64_t n = 0;
  RETURN_IF_ERROR(database().run("SELECT count(*) FROM batches WHERE owner = ?1 AND ended = 0",
                                 {owner}, [&](const DatabaseRow& row) { n = row.integer(0); }));
  if (n >= limits_.unfinished) {
    return errorf(ErrorCode::kResourceExhausted,
                  "{} batches of this API key have not ended, the most there may be", n);
  }
  return database().run(
      "DELETE FROM batches WHERE owner = ?1 AND ended <> 0 AND number <= (SELECT number FROM "
      "batches WHERE owner = ?1 AND ended <> 0 ORDER BY number DESC LIMIT 1 OFFSET ?2)",
      {owner, limits_.ended});
}

Status StoredBatches::write(const StoredBatch& batch) {
  const std::string since = nlohmann::json(batch.since).dump();
  return database().run(
      "UPDATE batches SET status = ?2, since = ?3, total = ?4, completed = ?5, failed = ?6, errors "
      "= ?7, output_file = ?8, error_file = ?9, ended = ?10 WHERE id = ?1",
      {batch.id, static_cast<int64_t>(batch.status), since, batch.total, batch.completed,
       batch.failed, batch.errors, batch.output_file, batch.error_file,
       static_cast<int64_t>(batch.ended())});
}

Result<StoredBatch> StoredBatches::find(const std::string& owner, const std::string& id) {
  std::vector<StoredBatch> found;
  RETURN_IF_ERROR(
      database().run(fmt::format("{} WHERE owner = ?1 AND id = ?2", kBatchColumns).c_str(),
                     {owner, id}, [&](const DatabaseRow& row) { found.push_back(batch_of(row)); }));
  if (found.empty()) return errorf(ErrorCode::kNotFound, "no such batch: {}", id);
  return std::move(found.front());
}

Result<std::vector<StoredBatch>> StoredBatches::list(const std::string& owner,
                                                     const std::string& after, int64_t limit,
                                                     bool& more) {
  int64_t edge = INT64_MAX;
  if (!after.empty()) {
    RETURN_IF_ERROR(find(owner, after));
    RETURN_IF_ERROR(database().run("SELECT number FROM batches WHERE id = ?1", {after},
                                   [&](const DatabaseRow& row) { edge = row.integer(0); }));
  }
  std::vector<StoredBatch> found;
  RETURN_IF_ERROR(database().run(
      fmt::format("{} WHERE owner = ?1 AND number < ?2 ORDER BY number DESC LIMIT ?3",
                  kBatchColumns)
          .c_str(),
      {owner, edge, limit + 1}, [&](const DatabaseRow& row) { found.push_back(batch_of(row)); }));
  more = static_cast<int64_t>(found.size()) > limit;
  if (more) found.pop_back();
  return found;
}

Result<std::vector<StoredBatch>> StoredBatches::unfinished() {
  std::vector<StoredBatch> found;
  RETURN_IF_ERROR(
      database().run(fmt::format("{} WHERE ended = 0 ORDER BY number", kBatchColumns).c_str(), {},
                     [&](const DatabaseRow& row) { found.push_back(batch_of(row)); }));
  return found;
}

Result<StoredBatch> StoredBatches::cancel(const std::string& owner, const std::string& id) {
  StoredBatch batch;
  RETURN_IF_ERROR(database().transact_removal([&]() -> Status {
    ASSIGN_OR_RETURN(batch, find(owner, id));
    if (batch.status == BatchStatus::kCancelling) return {};
    if (batch.status != BatchStatus::kValidating && batch.status != BatchStatus::kInProgress) {
      return errorf(ErrorCode::kInvalidArgument, "{}: a batch that is {} cannot be cancelled", id,
                    name_of(batch.status));
    }
    batch.status = BatchStatus::kCancelling;
    batch.since[static_cast<size_t>(batch.status)] = std::time(nullptr);
    return write(batch);
  }));
  return batch;
}

Result<std::string> StoredBatches::input_of(const StoredBatch& batch) {
  ASSIGN_OR_RETURN(const StoredFile file, files_.find(batch.owner, batch.input_file));
  return files_.read(file, 0, file.bytes);
}

Result<std::unique_ptr<BatchResults>> StoredBatches::results_of(const StoredBatch& batch) {
  return BatchResults::open(stem_of(batch.id) += ".output.jsonl",
                            stem_of(batch.id) += ".errors.jsonl");
}

Status StoredBatches::change(StoredBatch& batch, BatchStatus status, bool& taken) {
  ASSIGN_OR_RETURN(const StoredBatch now, find(batch.owner, batch.id));
  StoredBatch next = batch;
  next.status = status;
  taken = now.status != BatchStatus::kCancelling || next.ended();
  if (!taken) next.status = BatchStatus::kCancelling;
  constexpr auto kCancelling = static_cast<size_t>(BatchStatus::kCancelling);
  next.since[kCancelling] = now.since[kCancelling];
  int64_t& since = next.since[static_cast<size_t>(next.status)];
  if (since == 0) since = std::time(nullptr);
  RETURN_IF_ERROR(write(next));
  batch = std::move(next);
  return {};
}

Result<bool> StoredBatches::update(StoredBatch& batch, BatchStatus status) {
  bool taken = true;
  RETURN_IF_ERROR(database().transact([&] { return change(batch, status, taken); }));
  return taken;
}

Status StoredBatches::finish(StoredBatch& batch, BatchStatus status, BatchResults& results) {
  RETURN_IF_ERROR(results.sync());
  StoredBatch ended = batch;
  ended.completed = results.n_completed(), ended.failed = results.n_failed();
  // The contents are hard-linked, not moved: until the rows exist, the next process finds them
  // under their old names.
  std::vector<StoredFile> files;
  for (const bool failed : {false, true}) {
    if ((failed ? ended.failed : ended.completed) == 0) continue;
    const std::string name = fmt::format("{}_{}.jsonl", batch.id, failed ? "error" : "output");
    ASSIGN_OR_RETURN(StoredFile file, files_.link(name, failed ? "batch_error" : "batch_output",
                                                  results.path(failed)));
    (failed ? ended.error_file : ended.output_file) = file.id;
    files.push_back(std::move(file));
  }
  bool taken = true;
  RETURN_IF_ERROR(database().transact([&]() -> Status {
    for (const StoredFile& file : files) RETURN_IF_ERROR(files_.insert(batch.owner, file));
    return change(ended, status, taken);
  }));
  batch = std::move(ended);
  std::error_code ignored;
  for (const bool failed : {false, true}) fs::remove(results.path(failed), ignored);
  return {};
}

}  // namespace penstock
