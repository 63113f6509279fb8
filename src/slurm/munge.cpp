#include "slurm/munge.hpp"

#include <munge.h>

#include <cstdlib>
#include <ctime>
#include <memory>

#include "base/text.hpp"

namespace aliquot::slurm {
namespace {

// A sample is of no use after seconds; this allows for clocks that differ.
constexpr int kLifetimeSeconds = 60;

struct FreeContext {
  void operator()(munge_ctx_t context) const { ::munge_ctx_destroy(context); }
};
using Context = std::unique_ptr<munge_ctx, FreeContext>;

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};

Result<Context> make_context(const std::string& socket) {
  Context context(::munge_ctx_create());
  if (!context) return fail(Error::Code::internal, "no memory for munge");
  if (!socket.empty() &&
      ::munge_ctx_set(context.get(), MUNGE_OPT_SOCKET, socket.c_str()) != EMUNGE_SUCCESS) {
    return fail(Error::Code::invalid_argument, "munge cannot use the socket {}", quote(socket));
  }
  return context;
}

Error describe(munge_err_t error, const Context& context) {
  const char* detail = ::munge_ctx_strerror(context.get());
  const bool away = error == EMUNGE_SOCKET || error == EMUNGE_TIMEOUT;
  return {away ? Error::Code::unavailable : Error::Code::permission_denied,
          fmt::format("munge: {}", detail == nullptr ? ::munge_strerror(error) : detail)};
}

}  // namespace

Result<std::string> munge_text(std::string_view text, const std::string& socket) {
  const Context context = TRY(make_context(socket));
  ::munge_ctx_set(context.get(), MUNGE_OPT_TTL, kLifetimeSeconds);
  char* made = nullptr;
  const auto error =
      ::munge_encode(&made, context.get(), text.data(), static_cast<int>(text.size()));
  const std::unique_ptr<char, Free> owner(made);
  if (error != EMUNGE_SUCCESS) return tl::make_unexpected(describe(error, context));
  return std::string(made);
}

Result<MungeMessage> unmunge_text(const std::string& credential, const std::string& socket) {
  const Context context = TRY(make_context(socket));
  void* made = nullptr;
  int size = 0;
  uid_t uid = 0;
  gid_t gid = 0;
  const auto error = ::munge_decode(credential.c_str(), context.get(), &made, &size, &uid, &gid);
  const std::unique_ptr<void, Free> owner(made);
  // Of an expired or repeated one munge gives out the text as well; it is none for us.
  if (error != EMUNGE_SUCCESS) return tl::make_unexpected(describe(error, context));
  std::time_t encoded = 0;
  ::munge_ctx_get(context.get(), MUNGE_OPT_ENCODE_TIME, &encoded);
  return MungeMessage{
      made == nullptr ? std::string()
                      : std::string(static_cast<const char*>(made), static_cast<std::size_t>(size)),
      Uid(uid), encoded};
}

}  // namespace aliquot::slurm
