// One file of a fetch (fetch.h): a state machine that fetch_files() advances between the events of
// its connections.
#pragma once
#include <chrono>
#include <list>
#include <memory>
#include <optional>
#include <string>

#include "hub/download/fetch.h"
#include "hub/download/file_lock.h"
#include "hub/download/partial_blob.h"

namespace penstock {

class FileFetch {
 public:
  FileFetch(FetchContext& context, RepoFile file);
  ~FileFetch();
  FileFetch(const FileFetch&) = delete;
  FileFetch& operator=(const FileFetch&) = delete;

  // Advances the file without waiting: starts at most n_free requests, hashes some bytes. Returns
  // whether there is more to do immediately.
  bool step(int n_free);

  bool done() const { return state_ == State::kDone; }
  const std::optional<Error>& error() const { return error_; }
  const std::string& note() const { return note_; }
  int64_t size() const { return size_; }
  int64_t received() const;

 private:
  enum class State : uint8_t { kAsk, kAsking, kLock, kReceive, kDone };
  class Question;  // receiver of the answer to HEAD
  class Part;      // receiver of a range

  void ask();
  void on_description(const HttpAnswer& answer);
  Status take_description(RemoteFile remote);
  Checksum expected_checksum() const;

  Status try_lock();
  Status receive(int& n_free, bool& more);
  void start_parts(int& n_free);
  bool accept(Part& part, const HttpAnswer& answer);
  Status check_answer(const Part& part, const HttpAnswer& answer);
  bool take(Part& part, std::span<const std::byte> data);
  void on_part_end(Part& part, HttpAnswer answer);
  void restart_whole();
  Status finish();
  Status into_snapshot();

  void failed(const HttpAnswer& answer);  // schedules a retry, or sets the error
  void set_error(Error error);
  std::string shown() const;  // the name of the file in messages

  FetchContext& context_;
  RepoFile file_;
  State state_ = State::kAsk;
  std::optional<Error> error_;
  std::string note_;
  int64_t size_ = 0;

  std::unique_ptr<Question> question_;
  RemoteFile remote_;
  std::optional<FileLock> lock_;
  std::optional<PartialBlob> blob_;
  std::list<std::unique_ptr<Part>> parts_;
  bool whole_ = false;  // the server sends no ranges
  // the download was restarted (once) after ranges that did not match
  bool restarted_ = false;
  // The download was restarted (once) after a wrong checksum of bytes from an earlier run.
  bool rechecked_ = false;
  int n_failures_ = 0;  // failures since most_ last grew
  int64_t most_ = 0;    // maximum number of received bytes so far
  std::chrono::steady_clock::time_point not_before_;
};

}  // namespace penstock
