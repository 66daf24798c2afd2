// The key file: reading, writing, and watching for changes.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/file_error.h"
#include "base/file_time.h"
#include "base/json_text.h"
#include "base/regular_file.h"
#include "server/keys/ledger/api_keys.h"

namespace penstock {
namespace {

using json = nlohmann::json;
constexpr size_t kLargestFile = 64 << 20;  // bytes
constexpr std::chrono::milliseconds kWatchInterval{500};

bool is_hex(std::string_view text, size_t digits) {
  return text.size() == digits &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

double limit_of(const json& entry, const char* field) {
  const auto found = entry.find(field);
  if (found == entry.end() || found->is_null()) return 0;
  return found->is_number() ? found->get<double>() : -1;
}

Result<ApiKeyRecord> read_record(const json& entry, const std::string& where) {
  const auto wrong = [&](const char* what) {
    return errorf(ErrorCode::kCorruptFile, "{}: {}", where, what);
  };
  if (!entry.is_object()) return wrong("expected an object");
  const auto text = [&](const char* field) {
    const auto found = entry.find(field);
    return found != entry.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  ApiKeyRecord record;
  record.id = text("id");
  record.name = text("name");
  record.salt = text("salt");
  record.hash = text("hash");
  if (!is_hex(record.id, 12)) return wrong("id: expected 12 hexadecimal digits");
  if (!is_hex(record.salt, 32)) return wrong("salt: expected 32 hexadecimal digits");
  if (!is_hex(record.hash, 64)) return wrong("hash: expected 64 hexadecimal digits");
  const auto scopes = parse_scopes(text("scopes"));
  if (!scopes) return errorf(ErrorCode::kCorruptFile, "{}: {}", where, scopes.error().message);
  record.scopes = *scopes;
  record.requests_per_minute = limit_of(entry, "requests_per_minute");
  record.tokens_per_minute = limit_of(entry, "tokens_per_minute");
  bool valid = record.requests_per_minute >= 0 && record.tokens_per_minute >= 0;
  Budget::visit(record.budget, [&](const char* name, double& limit) {
    limit = limit_of(entry, name);
    valid = valid && limit >= 0;
  });
  if (!valid) return wrong("a quota is not a number >= 0");
  if (const auto created = entry.find("created");
      created != entry.end() && created->is_number_integer()) {
    record.created = created->get<int64_t>();
  }
  return record;
}

json to_json(const ApiKeyRecord& record) {
  json entry = {{"id", record.id},
                {"name", record.name},
                {"salt", record.salt},
                {"hash", record.hash},
                {"scopes", scope_names(record.scopes)},
                {"requests_per_minute", record.requests_per_minute},
                {"tokens_per_minute", record.tokens_per_minute},
                {"created", record.created}};
  Budget::visit(record.budget, [&](const char* name, double limit) {
    if (limit > 0) entry[name] = limit;
  });
  return entry;
}

KeyFileStamp stamp_of(const std::string& path) {
  struct stat info{};
  if (stat(path.c_str(), &info) != 0) return {-1, -1, -1, -1};
  return {nanoseconds_of(info.st_mtim), nanoseconds_of(info.st_ctim), info.st_size,
          static_cast<int64_t>(info.st_ino)};
}

}  // namespace

Result<std::vector<ApiKeyRecord>> read_key_file(const std::string& path) {
  const auto text = read_regular_file(path, kLargestFile);
  if (!text) return errorf(text.error().code, "key file {}", text.error().message);
  const json document = bounded_json<json>(*text);
  if (!document.is_object() || !document.contains("keys") || !document["keys"].is_array()) {
    return errorf(ErrorCode::kCorruptFile,
                  "key file {}: expected the JSON that `penstock keys add` writes", path);
  }
  std::vector<ApiKeyRecord> records;
  for (const json& entry : document["keys"]) {
    ASSIGN_OR_RETURN(
        ApiKeyRecord record,
        read_record(entry, fmt::format("key file {}, entry {}", path, records.size() + 1)));
    records.push_back(std::move(record));
  }
  return records;
}

Status write_key_file(const std::string& path, const std::vector<ApiKeyRecord>& keys) {
  json document = {{"keys", json::array()}};
  for (const ApiKeyRecord& record : keys) document["keys"].push_back(to_json(record));
  const std::string text = document.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
  const std::string fresh = fmt::format("{}.{}.new", path, getpid());
  const int file = ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) return errorf(ErrorCode::kIo, "key file {}: {}", fresh, std::strerror(errno));
  bool ok = true;
  for (size_t done = 0; ok && done < text.size();) {
    const ssize_t n = ::write(file, text.data() + done, text.size() - done);
    ok = n > 0;
    done += ok ? static_cast<size_t>(n) : 0;
  }
  ok = fsync(file) == 0 && ok;
  ok = ::close(file) == 0 && ok;
  if (ok && std::rename(fresh.c_str(), path.c_str()) == 0) return {};
  const int reason = errno;
  ::unlink(fresh.c_str());
  return errorf(file_error(reason), "key file {}: {}", path, std::strerror(reason));
}

Result<std::unique_ptr<ApiKeys>> ApiKeys::open(const std::string& file,
                                               const std::vector<std::string>& plain_keys,
                                               OnChange on_change) {
  std::unique_ptr<ApiKeys> keys(new ApiKeys);
  keys->file_ = file;
  keys->on_change_ = std::move(on_change);
  keys->required_ = !file.empty() || !plain_keys.empty();
  for (const std::string& key : plain_keys) {
    ASSIGN_OR_RETURN(ApiKeyRecord record, record_of_plain_key(key));
    keys->plain_.push_back(std::make_shared<ApiKey>(std::move(record)));
  }
  if (file.empty()) return keys;
  keys->stamp_ = stamp_of(file);
  ASSIGN_OR_RETURN(auto records, read_key_file(file));
  keys->take(std::move(records));
  keys->watcher_ =
      std::jthread([raw = keys.get()](const std::stop_token& stop) { raw->watch(stop); });
  return keys;
}

// Reports the differences in the terms of the audit log.
void ApiKeys::tell_changes(const KeysById& before, const KeysById& after) const {
  if (!on_change_) return;
  for (const auto& [id, key] : after) {
    const auto old = before.find(id);
    if (old == before.end())
      on_change_("key added", key->record());
    else if (to_json(old->second->record()) != to_json(key->record()))
      on_change_("key changed", key->record());
  }
  for (const auto& [id, key] : before) {
    if (!after.contains(id)) on_change_("key revoked", key->record());
  }
}

void ApiKeys::take(std::vector<ApiKeyRecord> records) {
  KeysById fresh;
  for (ApiKeyRecord& record : records) {
    const auto old = by_id_.find(record.id);
    auto key = std::make_shared<ApiKey>(std::move(record));
    if (old != by_id_.end()) key->share_balances(*old->second);
    fresh[key->record().id] = std::move(key);
  }
  by_id_ = std::move(fresh);
}

// Runs on a thread of its own, so that requests never wait for the disk.
void ApiKeys::watch(const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any stopped;
  std::unique_lock lock(mutex);
  while (!stopped.wait_for(lock, stop, kWatchInterval, [&] { return stop.stop_requested(); })) {
    try {
      read_again();
      // the stamp is unchanged: the next check reads the file again
    } catch (const std::bad_alloc&) {
    }
  }
}

void ApiKeys::read_again() {
  const auto stamp = stamp_of(file_);
  if (stamp == stamp_) return;
  auto records = read_key_file(file_);
  KeysById before, after;
  {
    const std::scoped_lock keys_lock(mutex_);
    before = by_id_;
    if (records) {
      take(std::move(*records));
    } else {
      warning_ = records.error().message + "; the keys read before stay in force";
    }
    after = by_id_;
  }
  stamp_ = stamp;
  tell_changes(before, after);
}

}  // namespace penstock
