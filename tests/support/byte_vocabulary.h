// A complete byte-pair vocabulary without merges, for tests of text: one token per byte, then control tokens.
#pragma once

#include <gguf.h>

#include <cstdint>
#include <string>
#include <vector>

namespace shale::testing {

inline constexpr std::uint32_t kByteVocabulary = 260;
inline constexpr std::int32_t kTurnStart = 256, kTurnEnd = 257;

// GPT-2 writes the bytes that are no visible characters as code points from 256 on.
inline std::vector<std::string> byte_vocabulary() {
  std::vector<std::string> tokens;
  unsigned next = 256;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const bool visible = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    const unsigned point = visible ? byte : next++;
    if (point < 128) {
      tokens.emplace_back(1, static_cast<char>(point));
    } else {
      tokens.push_back({static_cast<char>(0xc0 | (point >> 6)), static_cast<char>(0x80 | (point & 0x3f))});
    }
  }
  tokens.insert(tokens.end(), {"<|im_start|>", "<|im_end|>", "<|pad|>", "<|unused|>"});
  return tokens;
}

inline void set_byte_vocabulary(gguf_context* metadata, const std::vector<std::string>& tokens = byte_vocabulary()) {
  std::vector<const char*> texts;
  for (const std::string& token : tokens) texts.push_back(token.c_str());
  std::vector<std::int32_t> types(tokens.size(), 1);
  for (std::size_t i = 256; i < types.size(); ++i) types[i] = 3;  // control
  gguf_set_val_str(metadata, "tokenizer.ggml.model", "gpt2");
  gguf_set_val_str(metadata, "tokenizer.ggml.pre", "default");
  gguf_set_arr_str(metadata, "tokenizer.ggml.tokens", texts.data(), texts.size());
  gguf_set_arr_data(metadata, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, types.data(), types.size());
  gguf_set_arr_str(metadata, "tokenizer.ggml.merges", nullptr, 0);
  gguf_set_val_u32(metadata, "tokenizer.ggml.bos_token_id", kTurnStart);
  gguf_set_val_u32(metadata, "tokenizer.ggml.eos_token_id", kTurnEnd);
  gguf_set_val_bool(metadata, "tokenizer.ggml.add_bos_token", false);
  gguf_set_val_str(
      metadata, "tokenizer.chat_template",
      "{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nBe brief.<|im_end|>\n' }}{% endif %}"
      "{% for message in messages %}{% if message['role'] == 'tool' %}{{ raise_exception('no tools') }}"
      "{% endif %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
      "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}");
}

}  // namespace shale::testing
