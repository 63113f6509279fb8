#include "kube/api/cluster_config.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <boost/json/serialize.hpp>
#include <filesystem>
#include <map>

#include "kube/api/base64.hpp"
#include "kube/api/yaml.hpp"
#include "sys/testing.hpp"

namespace aliquot::kube {
namespace {

namespace json = boost::json;

std::string as_json(std::string_view text) {
  const auto value = parse_yaml(text);
  return value ? json::serialize(*value) : "error: " + value.error().message;
}

TEST(YamlTest, ReadsConfigurations) {
  EXPECT_EQ(as_json(""), "null");
  EXPECT_EQ(as_json("# nothing\n---\n"), "null");
  EXPECT_EQ(as_json("a: 1\nb: two\nc: -3\nd: true\ne: ~\nf:\ng: 0x10\nh: 007"),
            R"({"a":1,"b":"two","c":-3,"d":true,"e":null,"f":null,"g":"0x10","h":"007"})");
  EXPECT_EQ(as_json("a:\n  b:\n    c: d\n  e: f\ng: h\n"),
            R"({"a":{"b":{"c":"d"},"e":"f"},"g":"h"})");
  // Lists as far left as their key, and further in.
  EXPECT_EQ(as_json("l:\n- a: 1\n  b: 2\n- a: 3\nm: x\n"),
            R"({"l":[{"a":1,"b":2},{"a":3}],"m":"x"})");
  EXPECT_EQ(
      as_json("l:\n  - a\n  - - b\n    - c\n  -\n    d: e\n  - {f: [g, 'h, i'], \"j\": {}}\n"),
      R"({"l":["a",["b","c"],{"d":"e"},{"f":["g","h, i"],"j":{}}]})");
  EXPECT_EQ(
      as_json("a: 'it''s' # so\nb: \"x\\n\\u00fc\\x41\\\"\"\nc: x#y # z\n\"d e\": 'f: g'\n'h': i"),
      "{\"a\":\"it's\",\"b\":\"x\\nüA\\\"\",\"c\":\"x#y\",\"d e\":\"f: g\",\"h\":\"i\"}");
  EXPECT_EQ(as_json("a: |\n  one\n    two\n\n  three\nb: >-\n  x\n  y\nc: |+\n  z\n\n"),
            R"({"a":"one\n  two\n\nthree\n","b":"x y","c":"z\n\n"})");
  EXPECT_EQ(as_json("a: one\n  two\nb: \"three\n  four\"\nc: https://x:1/y\r\n"),
            R"({"a":"one two","b":"three four","c":"https://x:1/y"})");
  EXPECT_EQ(as_json("%YAML 1.2\n---\na: b\n---\nc: d\n"), R"({"a":"b"})");
  EXPECT_EQ(as_json("{\"a\": [1, 2.5, null]}"), R"({"a":[1,"2.5",null]})");
  EXPECT_EQ(as_json("{a: [1,\n  2], b: c}\n"), R"({"a":[1,2],"b":"c"})");
  EXPECT_EQ(as_json("just words"), "\"just words\"");
}

TEST(YamlTest, RefusesTheRestInWords) {
  EXPECT_EQ(as_json("a: &x 1\n"), "error: line 1: anchors, aliases and tags are not understood");
  EXPECT_EQ(as_json("a: 1\nb: *x\n"),
            "error: line 2: anchors, aliases and tags are not understood");
  EXPECT_EQ(as_json("a: !!str 1\n"), "error: line 1: anchors, aliases and tags are not understood");
  EXPECT_EQ(as_json("? [a]\n: b\n"), "error: line 1: keys of this kind are not understood");
  EXPECT_EQ(as_json("a: 1\n<<: x\n"), "error: line 2: keys of this kind are not understood");
  EXPECT_EQ(as_json("a: 1\na: 2\n"), "error: line 2: this key is there already");
  // The rest is libyaml's to say.
  for (const std::string_view text :
       {"a: 1\n   b: 2\n", "a:\n  b: 1\n c: 2\n", "a: 'x\n", "a: [1, 2\nb: 3\n", "a: [1 2] 3\n",
        "a: 'x' y\n", "a: \"\\q\"\n", "a:\n\t- b\n", "a: b\nwords\n", "a: 1\n}", "a: \xff\n"}) {
    EXPECT_TRUE(as_json(text).starts_with("error: line ")) << text;
  }
  std::string deep;
  for (int i = 0; i < 200; ++i) deep += std::string(static_cast<std::size_t>(i), ' ') + "a:\n";
  EXPECT_NE(as_json(deep).find("too deep"), std::string::npos);
  EXPECT_NE(as_json("a: " + std::string(10'000, '[')).find("error"), std::string::npos);
  EXPECT_NE(as_json("a: " + std::string(10'000, '[') + std::string(10'000, ']')).find("too deep"),
            std::string::npos);
  std::string dashes;
  for (int i = 0; i < 10'000; ++i) dashes += "- ";
  EXPECT_NE(as_json(dashes).find("too deep"), std::string::npos);
}

// Made of pieces that mean something: it ends, and says what is wrong.
RC_GTEST_PROP(YamlPropertyTest, BearsAnyText, ()) {
  static const std::vector<std::string> kPieces = {"a",    ":",
                                                   ": ",   "- ",
                                                   "-",    "\n",
                                                   "\n  ", "\n ",
                                                   "'",    "\"",
                                                   "\\",   "{",
                                                   "}",    "[",
                                                   "]",    ",",
                                                   "#",    " #",
                                                   "|",    ">",
                                                   "|\n",  ">+2\n",
                                                   "\t",   "---\n",
                                                   "...",  "&",
                                                   "*",    "!",
                                                   "?",    "%",
                                                   "\xff", "null",
                                                   "1",    "99999999999999999999",
                                                   "\r\n", "\\u12",
                                                   " "};
  const auto pieces = *rc::gen::container<std::vector<std::string>>(rc::gen::elementOf(kPieces));
  std::string text;
  for (const auto& piece : pieces) text += piece;
  const auto value = parse_yaml(text);
  RC_ASSERT(value || !value.error().message.empty());
  static_cast<void>(parse_kubeconfig(text, "/"));
}

TEST(Base64Test, BackAndForth) {
  EXPECT_EQ(encode_base64(""), "");
  EXPECT_EQ(encode_base64("a"), "YQ==");
  EXPECT_EQ(encode_base64("ab"), "YWI=");
  EXPECT_EQ(encode_base64("abc"), "YWJj");
  EXPECT_EQ(decode_base64("YW\nJj ZA=="), "abcd");
  EXPECT_EQ(decode_base64("YQ"), "a");
  for (const std::string_view text : {"Y", "YQ=", "YQ===", "Y=Q=", "YQ==YQ==", "Y-==", "YWJjZ"}) {
    EXPECT_FALSE(decode_base64(text)) << text;
  }
}

RC_GTEST_PROP(Base64PropertyTest, BackAndForth, (const std::string& text)) {
  RC_ASSERT(decode_base64(encode_base64(text)) == text);
}

constexpr std::string_view kConfig = R"(apiVersion: v1
kind: Config
clusters:
- cluster:
    certificate-authority-data: Q0E=
    server: https://10.0.0.1:6443
    tls-server-name: kubernetes
  name: lab
- name: plain
  cluster: {server: "http://[fd00::1]:8080/k8s/c-1/", insecure-skip-tls-verify: true}
- name: files
  cluster:
    server: https://api.example
    certificate-authority: pki/ca.crt
contexts:
- context: {cluster: lab, user: admin, namespace: team}
  name: admin@lab
- name: plain
  context:
    cluster: plain
- context:
    cluster: files
    user: files
  name: files
- {name: lost, context: {cluster: nowhere}}
- {name: program, context: {cluster: lab, user: program}}
- {name: password, context: {cluster: lab, user: password}}
current-context: admin@lab
preferences: {}
users:
- name: admin
  user:
    client-certificate-data: Q0VSVA==
    client-key-data: S0VZ
    token: secret
- name: files
  user:
    client-certificate: /etc/c.pem
    client-key: k.pem
    tokenFile: token
- name: program
  user:
    exec: {command: cloud}
- name: password
  user: {username: a, password: b}
)";

TEST(KubeconfigTest, ReadsWhatKubectlWrites) {
  const auto config = parse_kubeconfig(kConfig, "/home/x/.kube");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->host, "10.0.0.1");
  EXPECT_EQ(config->port, 6443);
  EXPECT_TRUE(config->use_tls);
  EXPECT_TRUE(config->tls.verify);
  EXPECT_EQ(config->tls.ca_data, "CA");
  EXPECT_EQ(config->tls.server_name, "kubernetes");
  EXPECT_EQ(config->tls.certificate_data, "CERT");
  EXPECT_EQ(config->tls.key_data, "KEY");
  EXPECT_EQ(config->token, "secret");
  EXPECT_EQ(config->name_space, "team");

  const auto plain = parse_kubeconfig(kConfig, "/", "plain");
  ASSERT_TRUE(plain) << plain.error().message;
  EXPECT_EQ(plain->host, "fd00::1");
  EXPECT_EQ(plain->port, 8080);
  EXPECT_EQ(plain->path_prefix, "/k8s/c-1");
  EXPECT_FALSE(plain->use_tls);
  EXPECT_FALSE(plain->tls.verify);
  EXPECT_EQ(plain->name_space, "default");

  const auto files = parse_kubeconfig(kConfig, "/home/x/.kube", "files");
  ASSERT_TRUE(files);
  EXPECT_EQ(files->port, 443);
  EXPECT_EQ(files->tls.ca_file, "/home/x/.kube/pki/ca.crt");
  EXPECT_EQ(files->tls.certificate_file, "/etc/c.pem");
  EXPECT_EQ(files->tls.key_file, "/home/x/.kube/k.pem");
  EXPECT_EQ(files->token_file, "/home/x/.kube/token");
}

TEST(KubeconfigTest, SaysWhatIsWrong) {
  const auto said = [](std::string_view text, std::string_view context = {}) {
    const auto config = parse_kubeconfig(text, "/", context);
    return config ? "" : config.error().message;
  };
  EXPECT_EQ(said(""), "this is no kubeconfig");
  EXPECT_EQ(said("- a"), "this is no kubeconfig");
  EXPECT_EQ(said("a: b"), "there is no current context: name one");
  EXPECT_EQ(said(kConfig, "other"), "there is no context 'other'");
  EXPECT_EQ(said(kConfig, "lost"), "there is no cluster 'nowhere'");
  EXPECT_NE(said(kConfig, "program").find("`exec`"), std::string::npos);
  EXPECT_NE(said(kConfig, "password").find("passwords"), std::string::npos);
  for (const std::string server :
       {"", "https://", "ftp://x", "https://x:0", "https://x:99999", "https://x:y", "https://[x",
        "https://a b", "https://u@x", "https://x/a?b", "'https://x:'"}) {
    const std::string text =
        "clusters: [{name: c, cluster: {server: \"" + server +
        "\"}}]\ncontexts: [{name: x, context: {cluster: c}}]\ncurrent-context: x\n";
    EXPECT_NE(said(text).find("is no address of an API server"), std::string::npos) << server;
  }
  EXPECT_NE(said("clusters: [{name: c, cluster: {server: x, certificate-authority-data: '!'}}]\n"
                 "contexts: [{name: x, context: {cluster: c}}]\ncurrent-context: x\n")
                .find("certificate-authority-data is no base64"),
            std::string::npos);
}

TEST(ClusterConfigTest, OfAPod) {
  const test::Folder folder;
  std::map<std::string, std::string> variables;
  const Environment environment = [&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
  EXPECT_EQ(in_cluster_config(environment, folder.path()).error().code, Error::Code::not_found);
  variables = {{"KUBERNETES_SERVICE_HOST", "10.96.0.1"}, {"KUBERNETES_SERVICE_PORT", "443"}};
  EXPECT_FALSE(in_cluster_config(environment, folder.path())) << "there is no token";
  // As it is mounted: links to links.
  std::filesystem::create_directory(folder.path() / "..1");
  ASSERT_TRUE(sys::write_whole(folder.path() / "..1" / "token", "t\n", 0600, false));
  ASSERT_TRUE(sys::write_whole(folder.path() / "..1" / "namespace", "kube-system\n", 0600, false));
  std::filesystem::create_directory_symlink("..1", folder.path() / "..data");
  std::filesystem::create_symlink("..data/token", folder.path() / "token");
  std::filesystem::create_symlink("..data/namespace", folder.path() / "namespace");
  const auto config = in_cluster_config(environment, folder.path());
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->host, "10.96.0.1");
  EXPECT_EQ(config->token_file, folder.path() / "token");
  EXPECT_EQ(config->tls.ca_file, folder.path() / "ca.crt");
  EXPECT_EQ(config->name_space, "kube-system");
  variables["KUBERNETES_SERVICE_PORT"] = "x";
  EXPECT_FALSE(in_cluster_config(environment, folder.path()));
}

TEST(ClusterConfigTest, IsFound) {
  const test::Folder folder;
  std::map<std::string, std::string> variables{{"HOME", folder.path()}};
  const Environment environment = [&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
  const auto none = find_cluster_config({}, {}, environment);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Error::Code::not_found);
  std::filesystem::create_directory(folder.path() / ".kube");
  ASSERT_TRUE(sys::write_whole(folder.path() / ".kube" / "config", kConfig, 0600, false));
  ASSERT_TRUE(sys::write_whole(folder.path() / "bad", "a: [", 0600, false));
  EXPECT_EQ(find_cluster_config({}, {}, environment)->host, "10.0.0.1");
  EXPECT_EQ(find_cluster_config({}, "plain", environment)->host, "fd00::1");
  variables["KUBECONFIG"] = folder.path() / "bad";
  const auto bad = find_cluster_config({}, {}, environment);
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().message,
            (folder.path() / "bad").string() + ": line 2: did not find expected node content");
  EXPECT_EQ(find_cluster_config(folder.path() / ".kube" / "config", {}, environment)->port, 6443);
}

}  // namespace
}  // namespace aliquot::kube
