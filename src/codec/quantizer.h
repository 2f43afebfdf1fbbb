// A quantizer turns keys and values of one (layer, KV head) into fewer bytes and back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/half.h"

namespace shale {

// Keys and values of `tokens` tokens of one head, laid out as pages are: keys one row a channel (rows `key_stride`
// elements apart), values one row a token.
template <class Element>
struct KvRows {
  Element* keys = nullptr;    // [head_dim][key_stride], the first `tokens` of each row
  Element* values = nullptr;  // [tokens][head_dim]
  std::size_t key_stride = 0;
  std::uint32_t tokens = 0;
  std::uint32_t head_dim = 0;
};

class Quantizer {
 public:
  virtual ~Quantizer() = default;
  virtual std::string_view name() const = 0;
  virtual double bits() const = 0;  // nominal bits per stored element
  // Tokens that share scales: encoding can be cut at its multiples. 1 where tokens are independent.
  virtual std::uint32_t group_tokens() const = 0;
  virtual std::size_t encoded_bytes(std::uint32_t tokens, std::uint32_t head_dim) const = 0;
  // `out` has encoded_bytes(); a tail shorter than group_tokens() is a short group. Thread-safe.
  virtual void encode(const KvRows<const Half>& rows, std::span<std::byte> out) const = 0;
  // Any bytes of the right length decode to something finite or not, never to undefined behaviour. Thread-safe.
  virtual void decode(std::span<const std::byte> in, const KvRows<Half>& rows) const = 0;
};

std::vector<std::string_view> quantizer_names();  // "none" among them
Result<std::unique_ptr<Quantizer>> make_quantizer(std::string_view name);

}  // namespace shale
