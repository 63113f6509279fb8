// `aliquot top` as text: the GPUs with what is granted and what is really used, now and in the last
// minute, the jobs that run with their share and their measured use, and those that wait. It fits
// on 80 columns. Pure; the screen is top.cpp's.
//
// Colours say what to look at: green is used, yellow is held and idle, red is broken or about to
// run out of memory, dim is free or waits.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "api/types.hpp"
#include "cli/view/overview_text.hpp"
#include "cli/view/paint.hpp"
#include "cli/view/top_history.hpp"
#include "cli/view/top_view.hpp"

namespace aliquot::cli {

// `view.first` is put right where there are not so many. With `view.lines` the last line says what
// is shown and which keys there are.
std::string format_top(const api::Overview& overview, const Looking& looking, TopView& view,
                       const TopHistory& history, const Paint& paint);

// The first lines and columns of a text that may hold colours: what fits on a screen.
std::string clip(std::string_view text, std::size_t lines, std::size_t columns);

}  // namespace aliquot::cli
