// One file of a fetch (fetch.h): a state machine that the fetch moves on, between the events of its connections.
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

  // Does what can be done now: starts at most `n_free` requests, checks some bytes. True when there is more to do at once.
  bool step(int n_free);

  bool done() const { return state_ == State::kDone; }
  const std::optional<Error>& error() const { return error_; }
  const std::string& note() const { return note_; }
  int64_t size() const { return size_; }
  int64_t received() const;

 private:
  enum class State : uint8_t { kAsk, kAsking, kLock, kReceive, kDone };
  class Question;  // receives the answer to HEAD
  class Part;      // receives a range

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

  void failed(const HttpAnswer& answer);  // tries again later, or gives up
  void set_error(Error error);
  std::string shown() const;  // the file in messages

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
  bool whole_ = false;      // the server sends no ranges
  bool restarted_ = false;  // once, after ranges that did not fit
  bool rechecked_ = false;  // once, after a checksum that did not fit what an earlier run had received
  int n_failures_ = 0;      // since more was there than ever before
  int64_t most_ = 0;        // bytes that were there at once
  std::chrono::steady_clock::time_point not_before_;
};

}  // namespace penstock
