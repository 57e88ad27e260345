// What mlx-c takes for granted on Apple's systems and Linux lacks.
// Force-included where mlx-c is compiled, and where bindgen reads its headers.
#pragma once

// mlx-c declares its 16 bit accessors on ARM only, and mlx-rs calls them everywhere.
#if !defined(__aarch64__)
#define HAS_FLOAT16
#define HAS_BFLOAT16
#ifdef __cplusplus
#include "mlx/types/half_types.h"
using mlx::core::bfloat16_t;
using mlx::core::float16_t;
#else // Read by bindgen alone: the types that give the same Rust declarations as on ARM.
typedef __fp16 float16_t;
typedef unsigned short bfloat16_t;
#endif
#endif

// `std::format` for standard libraries without it (libstdc++ before GCC 13). mlx-c uses only plain `{}`.
#ifdef __cplusplus
#include <version>
#ifndef __cpp_lib_format
#include <sstream>
#include <string>
#include <string_view>
namespace std {
inline void mlxc_format_to(ostringstream& out, string_view text) { out << text; }

template <class First, class... Rest>
void mlxc_format_to(ostringstream& out, string_view text, const First& first, const Rest&... rest) {
  auto at = text.find("{}");
  out << text.substr(0, at) << first;
  mlxc_format_to(out, text.substr(at + 2), rest...);
}

template <class... Arguments>
string format(string_view text, const Arguments&... arguments) {
  ostringstream out;
  mlxc_format_to(out, text, arguments...);
  return out.str();
}
} // namespace std
#endif
#endif
