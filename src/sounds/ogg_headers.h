// The pages and packets with which an Ogg file begins (RFC 3533; Vorbis I, 4.2 and A).
#pragma once
#include <cstddef>
#include <span>

namespace penstock {

// Whether the first page is whole and begins a stream, and, of a Vorbis stream, whether its three header
// packets are whole, on consecutive pages, and the first one valid. libsndfile 1.2.0 does not free what
// it has read of Vorbis headers that are not so. Time: linear in the headers' bytes.
bool has_ogg_headers(std::span<const std::byte> file);

}  // namespace penstock
