// A store of cached blocks outside of the cache, as the threads beside an engine use it.
#pragma once
#include <span>

#include "base/result.h"
#include "engine/store/block_image.h"

namespace penstock {

// contains(), touch() and read(): any thread. write(): one thread at a time.
class BlockStore {
 public:
  virtual ~BlockStore() = default;
  virtual const BlockImages& images() const = 0;

  virtual bool contains(const BlockKey& key) const = 0;
  // Notes that a block was used; false: it is not there.
  virtual bool touch(const BlockKey& key) const = 0;
  // Reads a block into `image` and notes that it was used. What is read is complete and of this key
  // and these tokens. Errors: kNotFound, kCorruptFile, kIo.
  virtual Status read(const BlockKey& key, std::span<const TokenId> tokens,
                      BlockImage& image) const = 0;
  // Begins to read a block that is going to be read soon, where that can be done beside.
  virtual void expect(const BlockKey& key) const { (void)key; }
  // Whether a block is in memory, where reading takes no time worth counting.
  virtual bool is_at_hand(const BlockKey& key) const {
    (void)key;
    return false;
  }
  // Whether only a store that is further away than the nearest has a block that was read.
  virtual bool is_far(const BlockKey& key) const {
    (void)key;
    return false;
  }
  // Whether those find a block who share no more than the store that is furthest away.
  virtual bool contains_far(const BlockKey& key) const { return contains(key); }
  // Writes a sealed image; one that is there already is touched. Errors: kIo, kResourceExhausted
  // (there is no room).
  virtual Status write(const BlockKey& key, const BlockImage& image) = 0;
};

}  // namespace penstock
