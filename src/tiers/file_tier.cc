#include "tiers/file_tier.h"

#include <utility>

#include "tiers/blob_frame.h"

namespace shale {
namespace {

constexpr double kPatienceS = 2;  // with a folder that is slow to open, before going on without it

}  // namespace

FileTier::FileTier(FileTierOptions options, std::unique_ptr<FolderOpening> opening, std::shared_ptr<BufferPool> buffers,
                   const Clock& clock)
    : Tier({options.name, options.capacity_bytes, options.first_guess}, clock),
      options_(std::move(options)),
      buffers_(std::move(buffers)),
      write_threads_(std::make_unique<IoThreads>(options_.threads, StandBack::kForWrites)),
      opening_(std::move(opening)) {}

FileTier::FileTier(FileTierOptions options, OpenFolder folder, std::shared_ptr<BufferPool> buffers, const Clock& clock)
    : FileTier(std::move(options), nullptr, std::move(buffers), clock) {
  use(std::move(folder));
}

Result<std::unique_ptr<Tier>> FileTier::make(FileTierOptions options, const std::filesystem::path& folder, bool late,
                                             const FolderOpening::Open& open, std::shared_ptr<BufferPool> buffers,
                                             const Clock& clock) {
  if (!late) {
    SHALE_ASSIGN(OpenFolder opened, open());
    return std::make_unique<FileTier>(std::move(options), std::move(opened), std::move(buffers), clock);
  }
  auto opening = std::make_unique<FolderOpening>(folder, open);
  opening->wait(kPatienceS);
  auto tier = std::make_unique<FileTier>(std::move(options), std::move(opening), std::move(buffers), clock);
  const Status reachable = tier->reachable();
  if (!reachable && reachable.error().code == ErrorCode::kInvalidArgument) return std::unexpected(reachable.error());
  return tier;
}

// Operations in flight end here, while all that they use still lives.
FileTier::~FileTier() {
  folder_.reader.reset();
  read_threads_.reset();
  write_threads_.reset();
}

void FileTier::use(OpenFolder folder) {
  folder_ = std::move(folder);
  if (!folder_.reader) read_threads_ = std::make_unique<IoThreads>(options_.threads, StandBack::kForReads);
  count_others(static_cast<std::int64_t>(folder_.stored_bytes));
  counted_ = folder_.counted;
  opening_.reset();
  opened_ = true;
}

const OpenFolder* FileTier::folder() const {
  if (opened_) return &folder_;
  auto& self = const_cast<FileTier&>(*this);  // whoever looks first takes it in
  const std::lock_guard lock(self.opening_mutex_);
  if (opened_) return &folder_;
  std::optional<OpenFolder> folder = opening_->take();
  if (!folder) return nullptr;
  self.use(std::move(*folder));
  return &folder_;
}

Status FileTier::reachable() const {
  if (folder()) return {};
  auto& self = const_cast<FileTier&>(*this);
  const std::lock_guard lock(self.opening_mutex_);
  if (opened_) return {};
  return std::unexpected(opening_->trouble());
}

std::unexpected<Error> FileTier::not_open() const {
  return fail(ErrorCode::kBusy, "{} is not open yet", options_.name);
}

std::optional<Error> FileTier::trouble() const {
  const Status open = reachable();
  return open ? Tier::trouble() : open.error();
}

std::uint64_t FileTier::capacity_bytes() const { return folder() ? Tier::capacity_bytes() : 0; }

bool FileTier::read_only() const {
  const OpenFolder* open = folder();
  return open && open->read_only;
}

std::string FileTier::describe() const {
  const OpenFolder* open = folder();
  return open ? open->describe : fmt::format("{}: not open", options_.name);
}

std::uint64_t FileTier::stored_bytes(std::uint64_t bytes) const { return framed_bytes(bytes); }

std::shared_ptr<TierRead> FileTier::read_impl(const BlobId& id, const BlobRange& range, double start_s) {
  auto read = std::make_shared<PendingRead>(first_block(range));
  const auto finish = [this, read, range, start_s](Result<BlobBytes> result) {
    const double seconds = clock_.now_s() - start_s;
    finished_read(start_s, seconds, result, range);
    read->complete(std::move(result), seconds);
  };
  const OpenFolder* open = folder();
  if (!open) {
    finish(not_open());
  } else if (open->reader) {
    open->reader->read(id, range, finish);
  } else {
    read_threads_->run([this, open, id, range, finish] {
      finish(no_memory_is_an_error([&] { return open->files->read(id, range, open->direct, *buffers_); }));
    });
  }
  return read;
}

std::shared_ptr<TierWrite> FileTier::write_impl(const BlobId& id, BlobBytes bytes, double start_s) {
  auto write = std::make_shared<PendingWrite>();
  begin_change();
  const auto finish = [this, write, start_s, size = bytes->size()](Result<bool> stored) {
    const double seconds = clock_.now_s() - start_s;
    const Status status = stored ? Status() : std::unexpected(stored.error());
    finished_write(start_s, seconds, size, stored.value_or(false), status);
    end_change();
    write->complete(std::move(stored), seconds);
  };
  const OpenFolder* open = folder();
  if (!open) {
    finish(not_open());
    return write;
  }
  const BlobFiles::WriteMode mode{.direct = open->direct, .sync = options_.sync, .drop_cached = options_.drop_cached};
  write_threads_->run([this, open, mode, id, bytes = std::move(bytes), finish] {
    finish(no_memory_is_an_error([&] { return write_where_room(*open, id, *bytes, mode); }));
  });
  return write;
}

Result<std::uint64_t> FileTier::remove_impl(const BlobId& id) {
  const OpenFolder* open = folder();
  if (!open) return not_open();
  begin_change();
  auto freed = no_memory_is_an_error([&] { return open->files->remove(id); });
  end_change();
  return freed;
}

Result<std::vector<BlobId>> FileTier::list_impl() const {
  const OpenFolder* open = folder();
  return open ? open->files->list() : not_open();
}

Result<std::vector<std::uint32_t>> FileTier::parts_impl(const Hash128& object) const {
  const OpenFolder* open = folder();
  return open ? open->files->parts(object) : not_open();
}

std::uint64_t FileTier::blob_bytes_impl(const BlobId& id) const {
  const OpenFolder* open = folder();
  return open ? open->files->file_bytes(id) : 0;
}

double FileTier::untouched_s(const BlobId& id) const {
  if (!options_.shared) return Tier::untouched_s(id);
  const OpenFolder* open = folder();
  return open ? open->files->untouched_s(id) : 0;
}

bool FileTier::count_again() {
  const OpenFolder* open = folder();
  if (!open || !counts_others()) return false;
  for (int tries = 0; tries < 2; ++tries) {
    const std::uint64_t begun = changes_begun_;
    const bool alone = changes_in_flight_ == 0;
    const bool counted = count_stored([open] { return open->files->total_bytes(); }).has_value();
    if (counted && alone && changes_begun_ == begun) return true;
    counted_beside_changes_ = true;
    if (!counted || changes_in_flight_ > 0) return counted;     // the last of them counts again
    if (!counted_beside_changes_.exchange(false)) return true;  // it has
  }
  counted_beside_changes_ = true;  // where changes never cease, the next of them counts again
  return true;
}

void FileTier::begin_change() {
  ++changes_begun_;
  ++changes_in_flight_;
}

void FileTier::end_change() {
  if (--changes_in_flight_ == 0 && counted_beside_changes_.exchange(false)) count_again();
}

Result<bool> FileTier::write_where_room(const OpenFolder& open, const BlobId& id, const AlignedBuffer& bytes,
                                        const BlobFiles::WriteMode& mode) {
  SHALE_TRY(check_room(open));
  SHALE_ASSIGN(const bool stored, open.files->write(id, bytes, mode));
  const Status room = stored ? check_room(open) : Status();
  if (room) return stored;
  (void)open.files->remove(id);  // the folder was replaced meanwhile
  return std::unexpected(room.error());
}

Status FileTier::check_room(const OpenFolder& open) {
  if (!counts_others()) return {};
  const std::optional<FileId> there = file_at(open.files->folder());
  const std::lock_guard lock(counting_mutex_);
  if ((there != counted_ || room_in_doubt_) && count_again()) {
    counted_ = there;
    room_in_doubt_ = used_bytes() > options_.capacity_bytes;
  }
  if (!room_in_doubt_) return {};
  return fail(ErrorCode::kFull, "{} is full: {} of {} bytes used", options_.name, used_bytes(),
              options_.capacity_bytes);
}

}  // namespace shale
