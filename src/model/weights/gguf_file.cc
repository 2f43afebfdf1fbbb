#include "model/weights/gguf_file.h"

#include <fcntl.h>
#include <gguf.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <stdexcept>

#include "model/library_log.h"

namespace shale {
namespace {

constexpr std::size_t kAlignmentMin = 32;

// Bytes of a tensor, or nothing where a dimension is empty or the product leaves 64 bits.
std::optional<std::uint64_t> byte_size(ggml_type type, const std::array<std::int64_t, 4>& shape) {
  const auto block = static_cast<std::uint64_t>(ggml_blck_size(type));
  if (block == 0 || shape[0] <= 0 || static_cast<std::uint64_t>(shape[0]) % block != 0) return std::nullopt;
  std::uint64_t size = static_cast<std::uint64_t>(shape[0]) / block;
  if (__builtin_mul_overflow(size, static_cast<std::uint64_t>(ggml_type_size(type)), &size)) return std::nullopt;
  for (int i = 1; i < 4; ++i) {
    if (shape[i] <= 0 || __builtin_mul_overflow(size, static_cast<std::uint64_t>(shape[i]), &size)) return std::nullopt;
  }
  return size;
}

}  // namespace

Result<std::unique_ptr<GgufFile>> GgufFile::open(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    const int reason = errno;
    return fail(reason == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo, "model file {}: {}", path.string(),
                std::strerror(reason));
  }
  struct stat status{};
  const bool regular = ::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
  if (!regular || status.st_size == 0) {
    ::close(descriptor);
    return fail(ErrorCode::kCorrupt, "model file {}: {}", path.string(), regular ? "empty" : "not a regular file");
  }
  const auto size = static_cast<std::size_t>(status.st_size);
  void* mapping = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
  const int reason = errno;
  ::close(descriptor);
  if (mapping == MAP_FAILED) return fail(ErrorCode::kIo, "model file {}: {}", path.string(), std::strerror(reason));

  std::unique_ptr<GgufFile> file(new GgufFile);
  file->mapping_ = mapping;
  file->bytes_ = {static_cast<const std::byte*>(mapping), size};
  if (auto status_read = file->read(); !status_read) {
    return fail_in("model file " + path.string(), std::move(status_read).error());
  }
  return file;
}

Result<std::unique_ptr<GgufFile>> GgufFile::parse(std::span<const std::byte> bytes) {
  std::unique_ptr<GgufFile> file(new GgufFile);
  file->bytes_ = bytes;
  SHALE_TRY(file->read());
  return file;
}

GgufFile::~GgufFile() {
  gguf_free(gguf_);
  if (mapping_) ::munmap(mapping_, bytes_.size());
}

Status GgufFile::read() {
  silence_libraries();
  if (bytes_.size() < 24 || std::memcmp(bytes_.data(), GGUF_MAGIC, 4) != 0) {
    return fail(ErrorCode::kCorrupt, "not a GGUF file");
  }
  try {
    gguf_ = gguf_init_from_buffer(bytes_.data(), bytes_.size(), {.no_alloc = true, .ctx = nullptr});
  } catch (const std::bad_alloc&) {
  } catch (const std::length_error&) {
  }
  if (!gguf_) return fail(ErrorCode::kCorrupt, "GGUF metadata do not parse (truncated or damaged?)");
  if (gguf_get_alignment(gguf_) < kAlignmentMin) {
    return fail(ErrorCode::kUnsupported, "tensor data aligned to {} bytes; at least {} is needed",
                gguf_get_alignment(gguf_), kAlignmentMin);
  }
  const std::uint64_t data_offset = gguf_get_data_offset(gguf_);
  for (std::int64_t i = 0; i < gguf_get_n_tensors(gguf_); ++i) {
    GgufTensor tensor{gguf_get_tensor_name(gguf_, i), gguf_get_tensor_type(gguf_, i), {}, {}};
    std::copy_n(gguf_get_tensor_ne(gguf_, i), 4, tensor.shape.begin());
    const auto size = byte_size(tensor.type, tensor.shape);
    if (!size) return fail(ErrorCode::kCorrupt, "tensor {} has an impossible shape", tensor.name);
    std::uint64_t begin = 0, end = 0;
    if (__builtin_add_overflow(data_offset, std::uint64_t{gguf_get_tensor_offset(gguf_, i)}, &begin) ||
        __builtin_add_overflow(begin, *size, &end) || end > bytes_.size()) {
      return fail(ErrorCode::kCorrupt, "the data of tensor {} lie beyond the end of the file (truncated?)",
                  tensor.name);
    }
    tensor.data = bytes_.subspan(begin, *size);
    tensors_.push_back(std::move(tensor));
  }
  return {};
}

Result<std::optional<std::uint64_t>> GgufFile::number(const std::string& key) const {
  const std::int64_t id = gguf_find_key(gguf_, key.c_str());
  if (id < 0) return std::nullopt;
  const auto natural = [&](std::int64_t value) -> Result<std::optional<std::uint64_t>> {
    if (value < 0) return fail(ErrorCode::kCorrupt, "{} is negative ({})", key, value);
    return static_cast<std::uint64_t>(value);
  };
  switch (gguf_get_kv_type(gguf_, id)) {
    case GGUF_TYPE_UINT8:
      return gguf_get_val_u8(gguf_, id);
    case GGUF_TYPE_UINT16:
      return gguf_get_val_u16(gguf_, id);
    case GGUF_TYPE_UINT32:
      return gguf_get_val_u32(gguf_, id);
    case GGUF_TYPE_UINT64:
      return gguf_get_val_u64(gguf_, id);
    case GGUF_TYPE_BOOL:
      return gguf_get_val_bool(gguf_, id) ? 1 : 0;
    case GGUF_TYPE_INT8:
      return natural(gguf_get_val_i8(gguf_, id));
    case GGUF_TYPE_INT16:
      return natural(gguf_get_val_i16(gguf_, id));
    case GGUF_TYPE_INT32:
      return natural(gguf_get_val_i32(gguf_, id));
    case GGUF_TYPE_INT64:
      return natural(gguf_get_val_i64(gguf_, id));
    default:
      return fail(ErrorCode::kCorrupt, "{} is not a number", key);
  }
}

Result<std::optional<double>> GgufFile::real(const std::string& key) const {
  const std::int64_t id = gguf_find_key(gguf_, key.c_str());
  if (id < 0) return std::nullopt;
  switch (gguf_get_kv_type(gguf_, id)) {
    case GGUF_TYPE_FLOAT32:
      return gguf_get_val_f32(gguf_, id);
    case GGUF_TYPE_FLOAT64:
      return gguf_get_val_f64(gguf_, id);
    default:
      return fail(ErrorCode::kCorrupt, "{} is not a floating-point number", key);
  }
}

Result<std::optional<std::string_view>> GgufFile::text(const std::string& key) const {
  const std::int64_t id = gguf_find_key(gguf_, key.c_str());
  if (id < 0) return std::nullopt;
  if (gguf_get_kv_type(gguf_, id) != GGUF_TYPE_STRING) return fail(ErrorCode::kCorrupt, "{} is not a string", key);
  return gguf_get_val_str(gguf_, id);
}

Result<std::vector<std::string_view>> GgufFile::texts(const std::string& key) const {
  std::vector<std::string_view> result;
  const std::int64_t id = gguf_find_key(gguf_, key.c_str());
  if (id < 0) return result;
  if (gguf_get_kv_type(gguf_, id) != GGUF_TYPE_ARRAY || gguf_get_arr_type(gguf_, id) != GGUF_TYPE_STRING) {
    return fail(ErrorCode::kCorrupt, "{} is not an array of strings", key);
  }
  const std::size_t count = gguf_get_arr_n(gguf_, id);
  result.reserve(count);
  for (std::size_t i = 0; i < count; ++i) result.emplace_back(gguf_get_arr_str(gguf_, id, i));
  return result;
}

template <class T>
Result<std::span<const T>> GgufFile::elements(const std::string& key, int type, std::string_view of) const {
  const std::int64_t id = gguf_find_key(gguf_, key.c_str());
  if (id < 0) return std::span<const T>();
  if (gguf_get_kv_type(gguf_, id) != GGUF_TYPE_ARRAY || gguf_get_arr_type(gguf_, id) != type) {
    return fail(ErrorCode::kCorrupt, "{} is not an array of {}", key, of);
  }
  return std::span(static_cast<const T*>(gguf_get_arr_data(gguf_, id)), gguf_get_arr_n(gguf_, id));
}

Result<std::span<const std::int32_t>> GgufFile::integers(const std::string& key) const {
  return elements<std::int32_t>(key, GGUF_TYPE_INT32, "32-bit integers");
}

Result<std::span<const float>> GgufFile::floats(const std::string& key) const {
  return elements<float>(key, GGUF_TYPE_FLOAT32, "32-bit floats");
}

Result<std::vector<bool>> GgufFile::flags(const std::string& key) const {
  const std::int64_t id = gguf_find_key(gguf_, key.c_str());
  const bool array = id >= 0 && gguf_get_kv_type(gguf_, id) == GGUF_TYPE_ARRAY;
  const gguf_type type = array ? gguf_get_arr_type(gguf_, id) : GGUF_TYPE_ARRAY;
  const auto flags_of = [&]<class T>(T) {
    const auto* data = static_cast<const T*>(gguf_get_arr_data(gguf_, id));
    std::vector<bool> flags(gguf_get_arr_n(gguf_, id));
    std::transform(data, data + flags.size(), flags.begin(), [](T value) { return value != 0; });
    return flags;
  };
  if (type == GGUF_TYPE_BOOL) return flags_of(std::int8_t{});
  if (type == GGUF_TYPE_INT32 || type == GGUF_TYPE_UINT32) return flags_of(std::int32_t{});
  return fail(ErrorCode::kCorrupt, "{} is not an array of flags", key);
}

bool GgufFile::has(const std::string& key) const { return gguf_find_key(gguf_, key.c_str()) >= 0; }

std::optional<std::size_t> GgufFile::array_length(const std::string& key) const {
  const std::int64_t id = gguf_find_key(gguf_, key.c_str());
  if (id < 0 || gguf_get_kv_type(gguf_, id) != GGUF_TYPE_ARRAY) return std::nullopt;
  return gguf_get_arr_n(gguf_, id);
}

const GgufTensor* GgufFile::tensor(std::string_view name) const {
  for (const GgufTensor& tensor : tensors_) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

std::span<const std::byte> GgufFile::metadata() const {
  return bytes_.first(std::min(bytes_.size(), gguf_get_data_offset(gguf_)));
}

}  // namespace shale
