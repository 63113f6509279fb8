#include "base/format_once.hpp"

template void fmt::detail::vformat_to<char>(fmt::detail::buffer<char>&, fmt::string_view,
                                            fmt::format_args, fmt::detail::locale_ref);
template fmt::appender fmt::formatter<std::int64_t>::format<fmt::format_context>(
    const std::int64_t&, fmt::format_context&) const;
