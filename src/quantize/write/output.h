// What a command may write over: never what it reads, and nothing but an earlier output.
#pragma once
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

#include "base/regular_file.h"
#include "formats/weight_source.h"

namespace penstock {

struct OutputPlace {
  std::filesystem::path path;
  bool is_directory = false;  // a checkpoint's, else one file
  // An earlier output may be replaced: a GGUF file, or a directory with a config.json and a model.safetensors
  // or its index, and without directories in it.
  bool replace = false;
};

// The path in normal form and with a name at its end, to which an extension can be added: `out` for `out/`.
std::filesystem::path without_slash(const std::filesystem::path& path);

// Error: kInvalidArgument: the output or a name beside it that is written (OUT.partial, OUT.parts,
// OUT.unfinished) is a file that is read or has one in it: the source's, all of its shards, and `also_read`,
// of which "" are left out.
Status check_no_input(const std::filesystem::path& out, const WeightSource* source,
                      std::span<const std::filesystem::path> also_read);

// Removes what a run that did not finish has left of a directory. Errors: those of check_no_input(); those of
// remove_unfinished(); kInvalidArgument: the output is there already, or is something else than replace
// allows.
Status check_output(const OutputPlace& out, const WeightSource* source,
                    std::span<const std::filesystem::path> also_read);

// A directory that is being written. OUT.unfinished beside it names its files from before the first one is
// there until finish(), so that those of a run that was stopped are known.
class UnfinishedDirectory {
 public:
  // Makes the directory if there is none. Files of an earlier output in it are named too, and removed.
  // REQUIRES: check_output() allows it. Errors: kIo; kResourceExhausted (disk full).
  static Result<UnfinishedDirectory> begin(const std::filesystem::path& out);

  // Returns the path of the file of that name, which is to be created. Errors: those of begin().
  Result<std::filesystem::path> place(const std::string& name);
  // Creates a file. Errors: those of begin().
  Status write(const std::string& name, const std::string& text);
  // The directory is whole.
  Status finish() const;

 private:
  std::filesystem::path out_, list_;
  FileDescriptor lock_;  // the list, locked
};

// Removes the files that OUT.unfinished names, then the directory if the run made it and nothing else is in
// it, then OUT.unfinished. Files of other names, and what is no regular file, stay. Errors: kIo;
// kInvalidArgument (OUT.unfinished is another file, or another user's, or of a run that still writes).
Status remove_unfinished(const std::filesystem::path& out);

// Writes a temporary file that is renamed at the end. Errors: kIo, kResourceExhausted (disk full).
Status write_file(const std::filesystem::path& path, std::span<const std::byte> bytes);
Status write_file(const std::filesystem::path& path, const std::string& text);

}  // namespace penstock
