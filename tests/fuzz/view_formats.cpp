// What users write to choose columns and order: -o, -O and -S of squeue, sinfo's and sacct's
// formats. Whatever it is, it is refused in one line or prints whole lines.
#include "cli/view/sacct_fields.hpp"
#include "cli/view/samples.hpp"
#include "cli/view/sinfo_fields.hpp"
#include "cli/view/squeue_fields.hpp"
#include "cli/view/squeue_print.hpp"
#include "fuzz.hpp"

using namespace aliquot;

namespace {

void print_queue(std::string_view format, std::string_view sort, bool by_name) {
  std::vector<api::JobInfo> jobs{cli::samples::running(1, "a"), cli::samples::array(7, "1-6%2"),
                                 cli::samples::small(9, "\xc3\xa4", "Priority")};
  cli::SqueueView view;
  view.format = format;
  view.sort = sort;
  view.by_name = by_name;
  view.expand_arrays = true;
  view.context.now = cli::samples::kNow;
  const auto text = cli::format_squeue(jobs, view);
  fuzz::require_one_line(text);
  if (text) fuzz::require(text->text.ends_with('\n') && jobs.size() == 8);
}

void print_node(std::string_view format, bool by_name) {
  const auto cluster = cli::samples::cluster();
  using Listing = cli::Listing<cli::NodeRow>;
  const auto listing = Listing::of(cli::sinfo_fields(), format, by_name);
  fuzz::require_one_line(listing);
  if (!listing) return;
  const auto text =
      cli::format_sinfo(*listing, cluster, {&cluster.partitions[0]}, {}, {cli::samples::kNow});
  fuzz::require(text.ends_with('\n'));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto text = fuzz::as_text(data, size);
  if (text.size() > 64) return 0;  // a width is up to 65,536: many of them only cost time
  for (const bool by_name : {false, true}) {
    print_queue(text, "", by_name);
    print_node(text, by_name);
  }
  print_queue("%i", text, false);
  const auto fields = cli::choose_sacct_fields(text);
  if (!fields) {
    fuzz::require(!fields.error().message.empty());
    return 0;
  }
  const auto table =
      cli::format_sacct(*fields, {cli::samples::running(1, "a")}, {}, {cli::samples::kNow, "lab"});
  fuzz::require(table.ends_with('\n'));
  return 0;
}
