// The heavy half of {fmt}: templates that every file would generate anew as soon as it formats into
// a buffer, logs a line or prints a quantity, four seconds each time. format_once.cpp has them for
// all. base/result.hpp includes this for everybody.
#pragma once

#include <fmt/format.h>

#include <cstdint>

extern template void fmt::detail::vformat_to<char>(fmt::detail::buffer<char>&, fmt::string_view,
                                                   fmt::format_args, fmt::detail::locale_ref);
extern template fmt::appender fmt::formatter<std::int64_t>::format<fmt::format_context>(
    const std::int64_t&, fmt::format_context&) const;
