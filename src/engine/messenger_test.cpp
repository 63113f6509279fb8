#include "engine/messenger.hpp"

#include <gmock/gmock.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

namespace aliquot::engine {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

Notice a_mail() {
  Notice notice;
  notice.subject = "Slurm Job_id=7 Name=train Ended";
  notice.addresses = {"ann@example.org", "bob"};
  notice.owner = Uid(::getuid());
  notice.job.id = 7;
  notice.job.name = "train";
  notice.job.state = "COMPLETED";
  return notice;
}

TEST(Messenger, AMailHasHeadersAndNoLineOfAUsers) {
  Notice notice = a_mail();
  notice.job.reason_detail = "first\nBcc: everybody";
  const auto text = mail_text(notice);
  EXPECT_THAT(text,
              StartsWith("To: ann@example.org, bob\nSubject: Slurm Job_id=7 Name=train Ended\n"));
  EXPECT_THAT(text, HasSubstr("\n\nJob: 7 (train)\n"));
  EXPECT_EQ(text.find("\nBcc:"), std::string::npos);
}

TEST(Messenger, ASubjectBeyondAsciiIsEncoded) {
  Notice notice = a_mail();
  notice.subject = "Slurm Name=Straße";
  EXPECT_THAT(mail_text(notice), HasSubstr("\nSubject: =?UTF-8?B?U2x1cm0gTmFtZT1TdHJhw59l?=\n"));
}

// The program gets the addresses as arguments, whatever is in them, and the mail on its input.
TEST(Messenger, RunsTheProgramWithoutAShell) {
  std::string pattern = testing::TempDir() + "aliquot-messenger-XXXXXX";
  const std::filesystem::path folder = ::mkdtemp(pattern.data());
  const auto program = folder / "sendmail";
  std::ofstream(program) << "#!/bin/sh\n{ printf '%s\\n' \"$@\"; cat; } >" << folder.string()
                         << "/part && mv " << folder.string() << "/part " << folder.string()
                         << "/sent\n";
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  Notice notice = a_mail();
  notice.program = program;
  notice.addresses = {"$(touch x)@example.org"};
  {
    Messenger messenger;
    messenger.post(notice);
    for (int i = 0; i < 6'000 && !std::filesystem::exists(folder / "sent"); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  std::ostringstream sent;
  sent << std::ifstream(folder / "sent").rdbuf();
  EXPECT_THAT(sent.str(),
              StartsWith("-i\n--\n$(touch x)@example.org\nTo: $(touch x)@example.org\n"));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace aliquot::engine
