#include "tier/faults.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <utility>

#include "core/units.h"
#include "tier/tier_wrapper.h"

namespace shale {
namespace {

constexpr double kLookS = 0.005;  // between two looks at whether what hangs still does

using Word = std::pair<std::string_view, bool TierFaults::*>;
constexpr Word kWords[] = {
    {"fail_reads", &TierFaults::fail_reads},
    {"flip_reads", &TierFaults::flip_reads},
    {"fail_writes", &TierFaults::fail_writes},
    {"full", &TierFaults::full},
    {"fail_lists", &TierFaults::fail_lists},
    {"fail_removals", &TierFaults::fail_removals},
    {"hang", &TierFaults::hang},
};

// Up to the first `mark`, which goes with it.
std::string_view cut(std::string_view& text, char mark) {
  const std::size_t end = std::min(text.find(mark), text.size());
  const std::string_view head = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return head;
}

Result<double> parse_seconds(std::string_view text) {
  const auto seconds = parse_number(text);
  if (seconds && std::isfinite(*seconds)) return *seconds;
  return fail(ErrorCode::kInvalidArgument, "'{}' is no number of seconds", text);
}

Result<TierFaults> parse_tier_faults(std::string_view words) {
  constexpr std::string_view kDelay = "delay=";
  TierFaults faults;
  while (!words.empty()) {
    const std::string_view word = cut(words, ',');
    const auto known = std::ranges::find(kWords, word, &Word::first);
    if (known != std::end(kWords)) {
      faults.*known->second = true;
    } else if (word.starts_with(kDelay)) {
      SHALE_ASSIGN(faults.delay_s, parse_seconds(word.substr(kDelay.size())));
    } else {
      return fail(ErrorCode::kInvalidArgument, "'{}' is no fault (src/tier/faults.h lists them)", word);
    }
  }
  return faults;
}

Status parse_line(std::string_view line, Faults& faults) {
  const std::string_view name = cut(line, ' ');
  if (name == "clock") {
    SHALE_ASSIGN(faults.clock_s, parse_seconds(line));
  } else {
    SHALE_ASSIGN(faults.tiers[std::string(name)], parse_tier_faults(line));
  }
  return {};
}

std::string text_of(const std::filesystem::path& path) {
  std::ifstream stream(path);
  return {std::istreambuf_iterator<char>(stream), {}};
}

class FaultyTier final : public TierWrapper {
 public:
  FaultyTier(std::unique_ptr<Tier> inner, std::shared_ptr<const FaultFile> file, const Clock& clock)
      : TierWrapper(std::move(inner), inner->speed(), clock), file_(std::move(file)) {}

  std::string describe() const override { return inner().describe() + ", with faults"; }

 private:
  // Nothing acts when an operation is due: whoever asks finds it done, or waits (as in the throttle).
  class Due {
   public:
    Due(const FaultyTier& tier, double start_s) : tier_(tier), faults_(tier.faults()), start_s_(start_s) {}
    const TierFaults& faults() const { return faults_; }
    double start_s() const { return start_s_; }
    bool ready() const {
      return tier_.clock_.now_s() >= start_s_ + faults_.delay_s && !(faults_.hang && tier_.faults().hang);
    }
    void wait() const {
      tier_.clock_.sleep_until_s(start_s_ + faults_.delay_s);
      if (faults_.hang) tier_.wait_while_hanging();
    }

   private:
    const FaultyTier& tier_;
    const TierFaults faults_;
    const double start_s_;
  };

  class Read final : public TierRead {
   public:
    Read(FaultyTier& tier, const Due& due, const BlobId& id, const BlobRange& range)
        : tier_(tier), due_(due), id_(id), range_(range), read_(tier.inner().read(id, range)) {}
    ~Read() override {
      if (!taken_) tier_.finished_read(due_.start_s(), seconds(), dropped(), range_, range_.whole() ? 0 : range_.bytes);
    }
    bool ready() const override { return read_->ready() && due_.ready(); }
    double seconds() const override { return std::max(due_.faults().delay_s, read_->seconds()); }
    std::uint64_t first_byte() const override { return read_->first_byte(); }
    Result<BlobBytes> take() override {
      taken_ = true;
      due_.wait();
      Result<BlobBytes> result = read_->take();
      if (due_.faults().fail_reads) result = fail(ErrorCode::kIo, "{}: a fault on demand", to_string(id_));
      if (due_.faults().flip_reads && result && !(*result)->empty()) result = flipped(**result);
      tier_.finished_read(due_.start_s(), tier_.clock_.now_s() - due_.start_s(), result, range_);
      return result;
    }

   private:
    BlobBytes flipped(const AlignedBuffer& bytes) const {
      auto copy = std::make_shared<AlignedBuffer>(bytes.size());
      std::memcpy(copy->data(), bytes.data(), bytes.size());
      const std::size_t middle = range_.whole() ? bytes.size() / 2 : range_.offset - first_byte() + range_.bytes / 2;
      copy->data()[middle] ^= std::byte{0x10};
      return copy;
    }

    FaultyTier& tier_;
    const Due due_;
    const BlobId id_;
    const BlobRange range_;
    const std::shared_ptr<TierRead> read_;
    bool taken_ = false;
  };

  class Write final : public TierWrite {
   public:
    // `write`: null where nothing is written.
    Write(FaultyTier& tier, const Due& due, const BlobId& id, std::uint64_t bytes, std::shared_ptr<TierWrite> write)
        : tier_(tier), due_(due), id_(id), bytes_(bytes), write_(std::move(write)) {}
    ~Write() override {
      if (!waited_) tier_.finished_write(due_.start_s(), seconds(), bytes_, false, dropped());
    }
    bool ready() const override { return (!write_ || write_->ready()) && due_.ready(); }
    double seconds() const override { return std::max(due_.faults().delay_s, write_ ? write_->seconds() : 0); }
    bool created() const override { return write_ && write_->created(); }
    Status wait() override {
      due_.wait();
      Status status = write_ ? write_->wait() : refused();
      if (!std::exchange(waited_, true)) {
        tier_.finished_write(due_.start_s(), tier_.clock_.now_s() - due_.start_s(), bytes_, created(), status);
      }
      return status;
    }

   private:
    Status refused() const {
      return fail(due_.faults().full ? ErrorCode::kFull : ErrorCode::kIo, "{}: a fault on demand", to_string(id_));
    }

    FaultyTier& tier_;
    const Due due_;
    const BlobId id_;
    const std::uint64_t bytes_;
    const std::shared_ptr<TierWrite> write_;
    bool waited_ = false;
  };

  static std::unexpected<Error> dropped() { return fail(ErrorCode::kCancelled, "nobody waited for it"); }

  TierFaults faults() const { return file_->of(name()); }
  void wait_while_hanging() const {
    while (faults().hang) clock_.sleep_until_s(clock_.now_s() + kLookS);
  }
  // For what blocks until it is done.
  TierFaults wait_for_turn() const {
    const Due due(*this, clock_.now_s());
    due.wait();
    return due.faults();
  }

  std::shared_ptr<TierRead> read_impl(const BlobId& id, const BlobRange& range, double start_s) override {
    return std::make_shared<Read>(*this, Due(*this, start_s), id, range);
  }
  std::shared_ptr<TierWrite> write_impl(const BlobId& id, BlobBytes bytes, double start_s) override {
    const Due due(*this, start_s);
    const std::uint64_t size = bytes->size();
    const bool refused = due.faults().fail_writes || due.faults().full;
    return std::make_shared<Write>(*this, due, id, size, refused ? nullptr : inner().write(id, std::move(bytes)));
  }
  Result<std::uint64_t> remove_impl(const BlobId& id) override {
    if (wait_for_turn().fail_removals) return fail(ErrorCode::kIo, "{}: a fault on demand", to_string(id));
    return TierWrapper::remove_impl(id);
  }
  Result<std::vector<BlobId>> list_impl() const override {
    if (wait_for_turn().fail_lists) return fail(ErrorCode::kIo, "{}: a fault on demand", name());
    return TierWrapper::list_impl();
  }
  Result<std::vector<std::uint32_t>> parts_impl(const Hash128& object) const override {
    if (wait_for_turn().fail_lists) return fail(ErrorCode::kIo, "{}: a fault on demand", name());
    return TierWrapper::parts_impl(object);
  }
  Result<std::vector<std::vector<std::uint32_t>>> parts_of_impl(std::span<const Hash128> objects) const override {
    if (wait_for_turn().fail_lists) return fail(ErrorCode::kIo, "{}: a fault on demand", name());
    return TierWrapper::parts_of_impl(objects);
  }
  std::uint64_t blob_bytes_impl(const BlobId& id) const override {
    wait_for_turn();
    return TierWrapper::blob_bytes_impl(id);
  }

  const std::shared_ptr<const FaultFile> file_;
};

}  // namespace

Result<Faults> parse_faults(std::string_view text) {
  Faults faults;
  for (int number = 1; !text.empty(); ++number) {
    const std::string_view line = cut(text, '\n');
    if (line.empty()) continue;
    if (Status parsed = parse_line(line, faults); !parsed)
      return fail_in(fmt::format("line {}", number), parsed.error());
  }
  return faults;
}

Result<std::shared_ptr<const FaultFile>> FaultFile::open(std::filesystem::path path) {
  if (auto faults = parse_faults(text_of(path)); !faults) return fail_in(path.string(), std::move(faults).error());
  return std::shared_ptr<const FaultFile>(new FaultFile(std::move(path)));
}

Faults FaultFile::now() const { return parse_faults(text_of(path_)).value_or(Faults()); }

TierFaults FaultFile::of(std::string_view tier) const {
  const Faults faults = now();
  const auto found = faults.tiers.find(tier);
  return found == faults.tiers.end() ? TierFaults() : found->second;
}

std::unique_ptr<Tier> make_faulty_tier(std::unique_ptr<Tier> tier, std::shared_ptr<const FaultFile> file,
                                       const Clock& clock) {
  return std::make_unique<FaultyTier>(std::move(tier), std::move(file), clock);
}

}  // namespace shale
