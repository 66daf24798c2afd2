// A batch without a server that listens: the lines of a file on disk, their results in another one.
//
// A result that is in the output is not computed again: a run that was killed is gone on with by
// the same call.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/regular_file.h"
#include "server/batches/batch_lines.h"
#include "server/batches/store/batches.h"

namespace penstock {

struct Services;

class BatchFile {
 public:
  struct Progress {
    int64_t total = 0, completed = 0, failed = 0;  // lines
    int64_t n_tokens = 0;                          // generated in this run
  };

  // Reads both files; the input may be larger than memory. Errors: kNotFound, kIo;
  // kInvalidArgument, the mistakes of the input, each with its line; kCorruptFile, an output with
  // something else in it.
  static Result<std::unique_ptr<BatchFile>> open(const std::string& input,
                                                 const std::string& output);

  // Computes what has no result yet. go_on is told how far it is, some times a second; false ends
  // it early. Errors: kIo.
  Status run(Services& services, const std::function<bool(const Progress&)>& go_on);
  Progress progress() const;

 private:
  struct Place {
    int64_t begin;
    int64_t bytes;
  };
  struct Run;
  BatchFile() = default;
  Status read_input();
  Status take_line(std::string_view text, int64_t begin, int64_t number);
  Status check_results() const;
  Result<BatchLine> line_at(const Place& place) const;
  net::awaitable<void> run_lines(Run& run);
  net::awaitable<void> run_line(Run& run, Place place);

  std::string input_;
  FileDescriptor file_;        // of the input
  std::vector<Place> places_;  // of its lines
  std::unordered_set<std::string> ids_;
  std::vector<BatchMistake> mistakes_;
  std::unique_ptr<BatchResults> results_;
  int64_t n_tokens_ = 0;
};

}  // namespace penstock
