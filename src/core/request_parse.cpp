#include "core/request_parse.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/percent.hpp"
#include "base/size.hpp"
#include "base/text.hpp"

namespace aliquot::core {
namespace {

using Code = Error::Code;

// `titanrtx`, `1g.10gb`, `1g.10gb+me`, `a100-sxm4-80gb`; not what looks like a fraction.
bool is_model(std::string_view text) {
  const auto alphanumeric = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  };
  const bool fraction =
      text.find('.') != text.npos && text.find_first_not_of("0123456789.") == text.npos;
  return !text.empty() && alphanumeric(text.front()) && !fraction &&
         std::ranges::all_of(text, [&](char c) {
           return alphanumeric(c) || std::string_view("._+-").find(c) != std::string_view::npos;
         });
}

bool is_negative(std::string_view text) {
  return text.starts_with('-') && is_digits(text.substr(1));
}

// One option's text: for messages that name it as the user wrote it.
struct Source {
  std::string_view option;
  std::string_view text;

  [[nodiscard]] std::string shown() const {
    return text.empty() ? std::string(option) : fmt::format("{}={}", option, quote(text));
  }
};

Result<std::int64_t> parse_count(const Source& source, std::string_view text,
                                 std::string_view syntax) {
  if (is_negative(text)) {
    return fail(Code::out_of_range, "{} is negative: write {}", source.shown(), syntax);
  }
  if (!is_digits(text)) {
    return fail(Code::invalid_argument, "{}: {} is not a count: write {}", source.shown(),
                quote(text), syntax);
  }
  const auto count = parse_digits(text);
  if (!count) {
    return fail(Code::out_of_range, "{}: {} is more than we can count: write {}", source.shown(),
                quote(text), syntax);
  }
  return *count;
}

// `[model][:count]`, either of them or both.
struct Counted {
  std::string model;
  std::int64_t count = 1;
};

Result<std::string> parse_model(const Source& source, std::string_view text,
                                std::string_view syntax) {
  if (!is_model(text)) {
    return fail(Code::invalid_argument, "{}: {} is neither a count nor a GPU model: write {}",
                source.shown(), quote(text), syntax);
  }
  return to_lower(text);
}

// A lone part that begins like a number is a count, unless it can only be a model (`1g.10gb`).
Result<Counted> parse_counted(const Source& source, const std::vector<std::string_view>& parts,
                              std::string_view syntax) {
  if (parts.size() > 2 || std::ranges::any_of(parts, [](auto part) { return part.empty(); })) {
    return fail(Code::invalid_argument, "{} does not read as [model:]count: write {}",
                source.shown(), syntax);
  }
  // Each TRY is a statement of its own: a TRY that returns from the middle of an initialiser leaks
  // the members that are already built.
  Counted counted;
  if (parts.empty()) return counted;
  if (parts.size() == 2) {
    counted.model = TRY(parse_model(source, parts[0], syntax));
    counted.count = TRY(parse_count(source, parts[1], syntax));
    return counted;
  }
  if (is_digits(parts[0]) || is_negative(parts[0])) {
    counted.count = TRY(parse_count(source, parts[0], syntax));
    return counted;
  }
  if (parts[0].find_first_not_of("0123456789.") == parts[0].npos) {
    return fail(Code::invalid_argument,
                "{} is not a whole number of GPUs: for a part of one write --gpu-share=50%",
                source.shown());
  }
  counted.model = TRY(parse_model(source, parts[0], syntax));
  return counted;
}

constexpr std::string_view kGpuSyntax = "gpu:2 or gpu:titanrtx:1";
constexpr std::string_view kCountSyntax = "a number such as 2, or a model and a number";

struct Gres {
  std::optional<Counted> gpus;
  std::optional<Tickets> tickets;
  std::string ticket_model;
};

// Slurm's suffixes for large counts, in powers of 1024: `8K`. 0: no number with a suffix.
std::int64_t suffix_factor(std::string_view text) {
  if (text.size() < 2 || !is_digits(text.substr(0, text.size() - 1))) return 0;
  std::int64_t factor = 1;
  for (const char letter : std::string_view("kmgtp")) {
    factor *= 1024;
    if (to_lower(text.substr(text.size() - 1)).front() == letter) return factor;
  }
  return 0;
}

Result<void> read_tickets(const Source& source, Tickets::Kind kind,
                          std::vector<std::string_view> parts, Gres& gres) {
  const auto name = name_of(kind);
  const bool mps = kind == Tickets::Kind::mps;
  const std::string_view syntax = mps ? "mps:25 or mps:titanrtx:25" : "shard:4 or shard:titanrtx:4";
  if (gres.tickets) {
    return fail(Code::invalid_argument,
                "{} asks for two parts of a GPU: write one of them, such as {}", source.shown(),
                syntax);
  }
  std::int64_t factor = 1;
  if (!parts.empty() && suffix_factor(parts.back()) > 0) {
    factor = suffix_factor(parts.back());
    parts.back().remove_suffix(1);
  }
  const bool says_count =
      parts.size() == 2 || (parts.size() == 1 && (is_digits(parts[0]) || !is_model(parts[0])));
  // Slurm's default is one. One of 100 mps is useless; one shard is not.
  if (mps && !says_count) {
    return fail(Code::invalid_argument, "{} does not say how much: write {}", source.shown(),
                syntax);
  }
  if (parts.size() == 1 && says_count && !is_digits(parts[0]) && !is_negative(parts[0])) {
    return fail(Code::invalid_argument, "{} does not read as {}[:model]:count: write {}",
                source.shown(), name, syntax);
  }
  auto counted = TRY(parse_counted(source, parts, syntax));
  if (counted.count == 0) {
    return fail(Code::invalid_argument,
                "{} asks for none of a GPU: write {}, or --gres=none for no GPU", source.shown(),
                syntax);
  }
  if (__builtin_mul_overflow(counted.count, factor, &counted.count)) {
    return fail(Code::out_of_range, "{} is more than we can count: write {}", source.shown(),
                syntax);
  }
  gres.tickets = Tickets{kind, counted.count};
  gres.ticket_model = std::move(counted.model);
  return {};
}

Result<void> read_gpus(const Source& source, const std::vector<std::string_view>& parts,
                       Gres& gres) {
  auto counted = TRY(parse_counted(source, parts, kGpuSyntax));
  if (gres.gpus && gres.gpus->model != counted.model) {
    return fail(Code::invalid_argument,
                "{} asks for GPUs of two models: write --gres=gpu:1 --constraint='a|b' for either",
                source.shown());
  }
  if (gres.gpus) {
    return fail(Code::invalid_argument, "{} counts GPUs twice: write {}", source.shown(),
                kGpuSyntax);
  }
  gres.gpus = std::move(counted);
  return {};
}

Result<Gres> parse_gres(std::string_view text) {
  const Source source{"--gres", text};
  Gres gres;
  if (text.empty()) {
    return fail(Code::invalid_argument, "--gres is empty: write gpu:1, mps:25, shard:4 or none");
  }
  if (equals_ignoring_case(text, "none")) return gres;

  for (auto entry : split(text, ',')) {
    // How newer and older versions of Slurm write it.
    for (const auto* prefix : {"gres/", "gres:"}) {
      if (entry.starts_with(prefix)) entry.remove_prefix(5);
    }
    std::string colons(entry);
    std::ranges::replace(colons, '=', ':');
    auto parts = split(colons, ':');
    const auto name = to_lower(parts.front());
    parts.erase(parts.begin());
    if (name == "gpu") {
      TRY(read_gpus(source, parts, gres));
    } else if (name == "mps" || name == "shard") {
      TRY(read_tickets(source, name == "mps" ? Tickets::Kind::mps : Tickets::Kind::shard, parts,
                       gres));
    } else if (entry.empty()) {
      return fail(Code::invalid_argument, "{} has an empty entry: write {}", source.shown(),
                  kGpuSyntax);
    } else {
      return fail(Code::invalid_argument,
                  "{}: {} is no resource: write gpu:1, mps:25, shard:4 or none", source.shown(),
                  quote(parts.empty() ? entry : std::string_view(name)));
    }
  }
  if (gres.tickets && gres.gpus) {
    if (gres.gpus->count != 0) {
      return fail(Code::invalid_argument,
                  "{} asks for a whole GPU and for a part of one: write either gpu:1 or {}:{}",
                  source.shown(), name_of(gres.tickets->kind), gres.tickets->count);
    }
    gres.gpus.reset();
  }
  return gres;
}

Result<Bytes> parse_gpu_mem(std::string_view text) {
  if (text.ends_with('%')) {
    return fail(Code::invalid_argument,
                "--gpu-mem={} is no size: write --gpu-mem=8G, or --gpu-share for a percentage",
                quote(text));
  }
  const auto size = parse_size(text);
  if (!size) return fail(size.error().code, "--gpu-mem: {}", size.error().message);
  if (*size == Bytes(0)) {
    return fail(Code::invalid_argument,
                "--gpu-mem={} asks for no memory: write --gpu-mem=8G, or --gpus=1 for a whole GPU",
                quote(text));
  }
  return *size;
}

Result<Compute> parse_gpu_share(std::string_view text) {
  // 0.5 may mean half a percent or half a GPU. A wrong guess would give a hundredth of what was
  // meant.
  if (text.starts_with("0.") && !text.ends_with('%')) {
    return fail(Code::invalid_argument,
                "--gpu-share={} may mean a fraction or a percentage: write it as 25% or 0.25%",
                quote(text));
  }
  const auto share = parse_percent(text);
  if (!share) return fail(share.error().code, "--gpu-share: {}", share.error().message);
  return *share;
}

Result<std::vector<std::string>> parse_constraint(std::string_view text) {
  auto inner = text;
  if (inner.size() >= 2 && ((inner.front() == '[' && inner.back() == ']') ||
                            (inner.front() == '(' && inner.back() == ')'))) {
    inner = inner.substr(1, inner.size() - 2);
  }
  std::vector<std::string> models;
  for (const auto part : split(inner, '|')) {
    if (part.find_first_of("&,") != part.npos) {
      return fail(Code::invalid_argument,
                  "--constraint={}: a GPU has one model: write a100|h100 for either of two",
                  quote(text));
    }
    if (!is_model(part)) {
      return fail(Code::invalid_argument,
                  "--constraint={}: {} is no GPU model: write names such as a100|h100", quote(text),
                  quote(part));
    }
    auto model = to_lower(part);
    if (std::ranges::find(models, model) == models.end()) models.push_back(std::move(model));
  }
  return models;
}

// What one option says: how many GPUs the whole job gets, and of which model.
struct Claim {
  std::string_view option;
  std::string_view text;
  Counted counted;
};

Result<void> add_claim(std::vector<Claim>& claims, std::string_view option,
                       const std::optional<std::string>& text, std::int64_t times) {
  if (!text) return {};
  const Source source{option, *text};
  if (text->empty()) {
    return fail(Code::invalid_argument, "{} is empty: write {}", option, kCountSyntax);
  }
  if (text->find(',') != text->npos) {
    return fail(Code::invalid_argument,
                "{} asks for GPUs of several models: write {}=1 --constraint='a|b' for either",
                source.shown(), option);
  }
  auto counted = TRY(parse_counted(source, split(*text, ':'), kCountSyntax));
  if (__builtin_mul_overflow(counted.count, times, &counted.count)) {
    return fail(Code::out_of_range, "{} is more than we can count: write {}", source.shown(),
                kCountSyntax);
  }
  claims.push_back({option, *text, std::move(counted)});
  return {};
}

// The GPUs of the whole job that all claims agree on.
Result<Counted> agree(const std::vector<Claim>& claims) {
  const Claim* first_model = nullptr;
  for (const auto& claim : claims) {
    if (claim.counted.count != claims.front().counted.count) {
      return fail(Code::invalid_argument,
                  "{}={} and {}={} disagree: {} and {} GPUs for the job; write only one of them",
                  claims.front().option, quote(claims.front().text), claim.option,
                  quote(claim.text), claims.front().counted.count, claim.counted.count);
    }
    if (claim.counted.model.empty()) continue;
    if (first_model != nullptr && first_model->counted.model != claim.counted.model) {
      return fail(Code::invalid_argument,
                  "{}={} and {}={} name different models: write only one of them",
                  first_model->option, quote(first_model->text), claim.option, quote(claim.text));
    }
    if (first_model == nullptr) first_model = &claim;
  }
  return Counted{first_model == nullptr ? "" : first_model->counted.model,
                 claims.front().counted.count};
}

Result<std::int64_t> per_node(std::int64_t total, const Claim& claim, std::int64_t nodes) {
  if (total % nodes != 0) {
    return fail(Code::invalid_argument,
                "{}={} is {} GPUs, which do not spread evenly over {} nodes: write a multiple of "
                "{}, or --gpus-per-node",
                claim.option, quote(claim.text), total, nodes, nodes);
  }
  const auto count = total / nodes;
  if (count > static_cast<std::int64_t>(kMaxGpusPerNode)) {
    const auto digits = fmt::format("{}", count);
    const auto hint = claim.counted.model.empty() && claim.text.ends_with(digits)
                          ? fmt::format("; if {0} is a model, write gpu:{0}:1", digits)
                          : std::string();
    return fail(Code::out_of_range, "{}={} asks for {} GPUs of one node: write at most {}{}",
                claim.option, quote(claim.text), count, kMaxGpusPerNode, hint);
  }
  return count;
}

// What is asked of each GPU.
Result<GpuPart> parse_what(const GpuOptions& options, const Gres& gres) {
  const auto amount = options.gpu_mem ? "--gpu-mem" : "--gpu-share";
  if (!options.gpu_mem && !options.gpu_share) {
    if (gres.tickets) return *gres.tickets;
    return WholeGpu{};
  }
  if (gres.tickets) {
    return fail(Code::invalid_argument,
                "--gres={} and {} both say which part of a GPU: write only one of them",
                quote(*options.gres), amount);
  }
  Amounts amounts;
  if (options.gpu_mem) amounts.memory = TRY(parse_gpu_mem(*options.gpu_mem));
  if (options.gpu_share) amounts.compute = TRY(parse_gpu_share(*options.gpu_share));
  if (gres.gpus && gres.gpus->count > 0) {
    const auto& [model, count] = *gres.gpus;
    return fail(Code::invalid_argument,
                "--gres={} asks for whole GPUs and {} for a part of one: drop {}, or write "
                "--gpus={}{}{} for shares",
                quote(*options.gres), amount, amount, model, model.empty() ? "" : ":", count);
  }
  return amounts;
}

Result<std::vector<std::string>> parse_models(const GpuOptions& options, std::string model) {
  std::vector<std::string> models;
  if (options.constraint) models = TRY(parse_constraint(*options.constraint));
  if (model.empty()) return models;
  if (!models.empty() && std::ranges::find(models, model) == models.end()) {
    return fail(Code::invalid_argument,
                "--constraint={} leaves out {}, the model asked for: write only one of them",
                quote(*options.constraint), quote(model));
  }
  return std::vector{std::move(model)};
}

}  // namespace

Result<std::optional<GpuRequest>> parse_gpu_options(const GpuOptions& options) {
  if (options.tasks < 1 || options.nodes < 1) {
    const bool tasks = options.tasks < 1;
    return fail(Code::invalid_argument, "{}={} is no number of {}: write at least 1",
                tasks ? "--ntasks" : "--nodes", tasks ? options.tasks : options.nodes,
                tasks ? "tasks" : "nodes");
  }
  Gres gres;
  if (options.gres) gres = TRY(parse_gres(*options.gres));
  const auto what = TRY(parse_what(options, gres));
  const bool share = !std::holds_alternative<WholeGpu>(what);

  std::vector<Claim> claims;
  if (gres.gpus) {
    auto counted = *gres.gpus;
    if (__builtin_mul_overflow(counted.count, options.nodes, &counted.count)) {
      return fail(Code::out_of_range, "--gres={} is more than we can count: write {}",
                  quote(*options.gres), kGpuSyntax);
    }
    claims.push_back({"--gres", *options.gres, std::move(counted)});
  }
  TRY(add_claim(claims, "--gpus", options.gpus, 1));
  TRY(add_claim(claims, "--gpus-per-node", options.gpus_per_node, options.nodes));
  TRY(add_claim(claims, "--gpus-per-task", options.gpus_per_task, options.tasks));
  if (claims.empty() && !share) return std::nullopt;

  GpuRequest request{.count = 1, .what = what, .models = {}};
  auto model = gres.ticket_model;
  if (!claims.empty()) {
    auto agreed = TRY(agree(claims));
    request.count = TRY(per_node(agreed.count, claims.front(), options.nodes));
    if (!model.empty() && !agreed.model.empty() && model != agreed.model) {
      return fail(Code::invalid_argument,
                  "--gres={} and {}={} name different models: write only one of them",
                  quote(*options.gres), claims.front().option, quote(claims.front().text));
    }
    if (model.empty()) model = std::move(agreed.model);
  }
  if (request.count == 0) {
    if (!share) return std::nullopt;
    return fail(Code::invalid_argument,
                "{}={} asks for no GPU, another option for a part of one: write only one of them",
                claims.front().option, quote(claims.front().text));
  }
  request.models = TRY(parse_models(options, std::move(model)));
  return request;
}

GpuOptions options_of(const std::optional<GpuRequest>& request) {
  GpuOptions options;
  if (!request) {
    options.gres = "none";
    return options;
  }
  const auto model = request->models.size() == 1 ? request->models.front() + ':' : std::string();
  if (request->models.size() > 1) {
    options.constraint = fmt::format("{}", fmt::join(request->models, "|"));
  }
  if (const auto* amounts = std::get_if<Amounts>(&request->what)) {
    if (amounts->memory) options.gpu_mem = format_size(*amounts->memory);
    if (amounts->compute) options.gpu_share = format_percent(*amounts->compute);
    if (request->count != 1 || !model.empty()) {
      options.gpus = fmt::format("{}{}", model, request->count);
    }
  } else if (const auto* tickets = std::get_if<Tickets>(&request->what)) {
    options.gres = fmt::format("{}:{}{}", name_of(tickets->kind), model, tickets->count);
    if (request->count != 1) options.gpus = fmt::format("{}", request->count);
  } else {
    options.gres = fmt::format("gpu:{}{}", model, request->count);
  }
  return options;
}

std::string format_gpu_request(const std::optional<GpuRequest>& request) {
  const auto options = options_of(request);
  std::string words = options.gres.value_or("");
  const auto add = [&](std::string_view name, const std::optional<std::string>& value) {
    if (value) words += fmt::format("{}{}={}", words.empty() ? "" : " ", name, *value);
  };
  add("--gpu-mem", options.gpu_mem);
  add("--gpu-share", options.gpu_share);
  add("--gpus", options.gpus);
  add("--constraint", options.constraint);
  return words;
}

}  // namespace aliquot::core
