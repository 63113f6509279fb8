// A file of the page as it lies in the program; files.hpp, which the build writes, has them all.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace aliquot::show {

struct PageFile {
  std::string_view path;
  std::string_view type;
  std::string_view tag;  // another one for other content
  const unsigned char* data;
  std::size_t size;

  [[nodiscard]] std::string bytes() const { return {reinterpret_cast<const char*>(data), size}; }
};

}  // namespace aliquot::show
