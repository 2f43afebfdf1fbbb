#include "profile/metrics/code_match.h"

#include <gtest/gtest.h>

#include <string>

#include "profile/metrics/text_metrics.h"

namespace shale {
namespace {

std::string language_of(std::string_view text) {
  const auto tree = CodeTree::of_code(text);
  return tree ? std::string(tree->language().name) : "none";
}

CodeTree python(std::string_view text) { return CodeTree::parse(text, code_languages()[0]); }

double same_syntax(std::string_view answer, std::string_view reference) {
  return syntax_match(python(answer), python(reference));
}

std::optional<double> same_flow(std::string_view answer, std::string_view reference) {
  return data_flow_match(python(answer), python(reference));
}

constexpr std::string_view kPython =
    "def mean(values):\n    total = 0\n    for value in values:\n        total += value\n"
    "    return total / len(values)\n";

TEST(CodeTree, TellsTheLanguage) {
  EXPECT_EQ(language_of(kPython), "python");
  EXPECT_EQ(language_of("public static int add(int a, int b) { int sum = a + b; return sum; }"), "java");
  EXPECT_EQ(language_of("const add = (a, b) => { let sum = a + b; return sum; };"), "javascript");
  EXPECT_EQ(language_of("func add(a int, b int) int {\n\tsum := a + b\n\treturn sum\n}\n"), "go");
}

TEST(CodeTree, TellsCodeFromProse) {
  for (const char* prose :
       {"Paris", "42", "no, twice", "police, killed", "The treaty was signed in 1648, after thirty years of war.",
        "Summary: the council met; they voted", "- one\n- two\n- three"}) {
    EXPECT_EQ(language_of(prose), "none") << prose;
  }
}

TEST(CodeTree, ReadsCodeThatIsCutOff) {
  EXPECT_EQ(language_of(kPython.substr(0, kPython.size() - 12)), "python");
  EXPECT_GT(code_bleu(kPython.substr(0, kPython.size() - 12), kPython), 0.5);
}

TEST(CodeTree, HoldsEveryNodeAmongItsAncestorsDescendants) {
  const CodeTree tree = python(kPython);
  const auto nodes = tree.nodes();
  ASSERT_GT(nodes.size(), 20u);
  EXPECT_EQ(nodes[0].end, nodes.size());
  for (std::uint32_t i = 0; i < nodes.size(); ++i) {
    std::uint32_t child = i + 1;
    for (; child < nodes[i].end; child = nodes[child].end) EXPECT_EQ(nodes[child].depth, nodes[i].depth + 1);
    EXPECT_EQ(child, nodes[i].end);
  }
}

TEST(CodeTree, SurvivesWhatIsNestedWithoutEnd) {
  const std::string deep = "x = " + std::string(50'000, '(');
  EXPECT_GE(code_bleu(deep, std::string(kPython)), 0);
  std::string loops;
  for (int i = 0; i < 60; ++i) loops += std::string(i, ' ') + "while x:\n";
  EXPECT_EQ(same_flow(loops + std::string(60, ' ') + "x = y\n", loops + std::string(60, ' ') + "x = y\n"), 1);
  EXPECT_GE(code_bleu(std::string(kPython), deep + "x" + std::string(50'000, ')')), 0);
}

TEST(SyntaxMatch, NamesValuesAndCommentsDoNotCount) {
  EXPECT_EQ(same_syntax("x = 1\ny = x + 2\n", "a = 5\nb = a + 7\n"), 1);
  EXPECT_EQ(same_syntax("# says nothing\nx = 1\n", "x = 1\n"), 1);
}

// Of module, two statements, two assignments and a binary operator the answer has two: a statement and its assignment.
TEST(SyntaxMatch, CountsEachSubtreeAsOftenAsBothHaveIt) {
  EXPECT_DOUBLE_EQ(same_syntax("x = 1\n", "x = 1\ny = x + 2\n"), 2.0 / 6);
  EXPECT_DOUBLE_EQ(same_syntax("x = 1\n", "x = 1\ny = 2\n"), 2.0 / 5);
}

TEST(DataFlowMatch, FollowsValuesWhateverTheirNames) {
  EXPECT_EQ(same_flow("a = 1\nb = 2\nreturn a + b\n", "x = 1\ny = 2\nreturn x + y\n"), 1);
  EXPECT_EQ(same_flow("a, b = 1, c\n", "x = 1\ny = z\n"), 1) << "one by one";
}

// The paper's figure 4: only the data flow tells which variable is returned.
TEST(DataFlowMatch, SeesTheOtherVariableWhereSyntaxDoesNot) {
  const std::string_view one = "x = 1\ny = 2\nreturn x\n", other = "x = 1\ny = 2\nreturn y\n";
  EXPECT_EQ(same_syntax(one, other), 1);
  EXPECT_DOUBLE_EQ(same_flow(one, other).value(), 4.0 / 5) << "1 and x from it, 2 and y from it, and the use";
}

TEST(DataFlowMatch, AValueThatALoopGivesComesAroundToItsFront) {
  const std::string_view around = "while more:\n    use(last)\n    last = read()\n";
  const std::string_view once = "if more:\n    use(last)\n    last = read()\n";
  EXPECT_LT(same_flow(once, around).value(), 1);
}

TEST(DataFlowMatch, NothingFlowsWhereNothingIsGivenAName) {
  EXPECT_EQ(same_flow("x = 1\n", "pass\n"), std::nullopt);
  EXPECT_EQ(same_flow("pass\n", "x = 1\n"), 0);
}

// Each language's words for a declaration, an assignment, a loop and an update.
TEST(DataFlowMatch, ReadsEveryLanguage) {
  struct Programs {
    const char *language, *whole, *other;  // the other sums up something else
  };
  for (const Programs& each :
       {Programs{"python", "total = 0\nfor value in values:\n    total += value\n",
                 "total = 0\nfor value in values:\n    total += total\n"},
        Programs{"java", "int total = 0; for (int value : values) { total = total + value; } count++;",
                 "int total = 0; for (int value : values) { total = total + total; } count++;"},
        Programs{"javascript", "let total = 0; for (const value of values) { total += value; } count++;",
                 "let total = 0; for (const value of values) { total += total; } count++;"},
        Programs{"go", "total := 0\nfor _, value := range values { total = total + value }\ncount++\n",
                 "total := 0\nfor _, value := range values { total = total + total }\ncount++\n"}}) {
    const auto& language = *std::ranges::find(code_languages(), each.language, &CodeLanguage::name);
    const CodeTree whole = CodeTree::parse(each.whole, language), other = CodeTree::parse(each.other, language);
    EXPECT_EQ(data_flow_match(whole, whole), 1) << each.language;
    const double share = data_flow_match(other, whole).value_or(0);
    EXPECT_GT(share, 0.3) << each.language;
    EXPECT_LT(share, 1) << each.language;
  }
}

}  // namespace
}  // namespace shale
