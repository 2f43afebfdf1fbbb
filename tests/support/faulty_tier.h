// A tier that fails on policy, around one that does not: full disks, failing devices, flipped bits, slow answers.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>

#include "tier/pending.h"
#include "tier/tier_wrapper.h"

namespace shale::testing {

// What goes wrong, by the number of the operation since construction, the first being 1. Empty: nothing.
struct Faults {
  std::function<bool(std::uint64_t nth)> fail_read = {};     // kIo
  std::function<bool(std::uint64_t nth)> corrupt_read = {};  // one bit in the middle flips
  std::function<bool(std::uint64_t nth)> fail_write = {};    // kIo; nothing is stored
  std::function<bool(std::uint64_t nth)> full = {};          // kFull; nothing is stored
  std::function<bool(std::uint64_t nth)> fail_remove = {};   // kIo; nothing is removed
  std::function<bool(std::uint64_t nth)> fail_list = {};     // kIo
  double delay_s = 0;                       // every read and write takes at least as long, before it returns
  const std::atomic<bool>* open = nullptr;  // removing and listing parts wait until it is true
  // Told of each before it begins, on the thread that asks for it. Nothing goes wrong.
  std::function<void(const BlobId&)> on_write = {}, on_remove = {};
};

inline std::function<bool(std::uint64_t)> only(std::uint64_t n) {
  return [n](std::uint64_t nth) { return nth == n; };
}
inline std::function<bool(std::uint64_t)> every(std::uint64_t n) {
  return [n](std::uint64_t nth) { return nth % n == 0; };
}
inline std::function<bool(std::uint64_t)> after(std::uint64_t n) {
  return [n](std::uint64_t nth) { return nth > n; };
}

class FaultyTier final : public TierWrapper {
 public:
  FaultyTier(std::unique_ptr<Tier> inner, Faults faults, const Clock& clock)
      : TierWrapper(std::move(inner), {}, clock), faults_(std::move(faults)) {}

 private:
  static bool hits(const std::function<bool(std::uint64_t)>& fault, std::uint64_t nth) { return fault && fault(nth); }

  Result<BlobBytes> read_now(TierRead& read, const BlobId& id, const BlobRange& range, std::uint64_t nth) {
    Result<BlobBytes> result = read.take();
    if (hits(faults_.fail_read, nth)) return fail(ErrorCode::kIo, "{}: injected read error", to_string(id));
    if (!result || !hits(faults_.corrupt_read, nth) || (*result)->empty()) return result;
    auto flipped = std::make_shared<AlignedBuffer>((*result)->size());
    std::memcpy(flipped->data(), (*result)->data(), flipped->size());
    const std::size_t middle = range.whole() ? flipped->size() / 2 : range.offset - read.first_byte() + range.bytes / 2;
    flipped->data()[middle] ^= std::byte{0x10};
    return flipped;
  }

  Result<bool> write_now(const BlobId& id, BlobBytes bytes, std::uint64_t nth) {
    if (hits(faults_.fail_write, nth)) return fail(ErrorCode::kIo, "{}: injected write error", to_string(id));
    if (hits(faults_.full, nth)) return fail(ErrorCode::kFull, "{}: injected full disk", to_string(id));
    const auto write = inner().write(id, std::move(bytes));
    SHALE_TRY(write->wait());
    return write->created();
  }

  std::shared_ptr<TierRead> read_impl(const BlobId& id, const BlobRange& range, double start_s) override {
    const auto inner_read = inner().read(id, range);
    Result<BlobBytes> result = read_now(*inner_read, id, range, ++reads_);
    auto read = std::make_shared<PendingRead>(inner_read->first_byte());
    clock_.sleep_until_s(start_s + faults_.delay_s);
    const double seconds = clock_.now_s() - start_s;
    finished_read(start_s, seconds, result, range);
    read->complete(std::move(result), seconds);
    return read;
  }

  std::shared_ptr<TierWrite> write_impl(const BlobId& id, BlobBytes bytes, double start_s) override {
    const std::uint64_t size = bytes->size();
    if (faults_.on_write) faults_.on_write(id);
    Result<bool> created = write_now(id, std::move(bytes), ++writes_);
    clock_.sleep_until_s(start_s + faults_.delay_s);
    const Status status = created ? Status() : std::unexpected(created.error());
    finished_write(start_s, clock_.now_s() - start_s, size, created.value_or(false), status);
    return finished_tier_write(std::move(created));
  }

  Result<std::uint64_t> remove_impl(const BlobId& id) override {
    wait_until_open();
    if (faults_.on_remove) faults_.on_remove(id);
    if (hits(faults_.fail_remove, ++removals_)) return fail(ErrorCode::kIo, "{}: injected failure", to_string(id));
    return TierWrapper::remove_impl(id);
  }

  Result<std::vector<std::uint32_t>> parts_impl(const Hash128& object) const override {
    wait_until_open();
    return TierWrapper::parts_impl(object);
  }

  Result<std::vector<std::vector<std::uint32_t>>> parts_of_impl(std::span<const Hash128> objects) const override {
    return Tier::parts_of_impl(objects);
  }

  Result<std::vector<BlobId>> list_impl() const override {
    if (hits(faults_.fail_list, ++lists_)) return fail(ErrorCode::kIo, "{}: injected list error", name());
    return TierWrapper::list_impl();
  }

  void wait_until_open() const {
    if (faults_.open) faults_.open->wait(false);
  }

  const Faults faults_;
  std::atomic<std::uint64_t> reads_ = 0;
  std::atomic<std::uint64_t> writes_ = 0;
  std::atomic<std::uint64_t> removals_ = 0;
  mutable std::atomic<std::uint64_t> lists_ = 0;
};

}  // namespace shale::testing
