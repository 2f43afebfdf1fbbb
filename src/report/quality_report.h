// Tables and charts of measured quality.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "report/quality_rows.h"
#include "report/svg_chart.h"

namespace shale {

struct ReportTable {
  std::string title, note;
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;
};

// One block a model, way of asking (question seen or not) and setting (QualityRow), which are never mixed, over all
// data sets together: agreement by method and keep with bootstrap intervals over contexts; by data set; bytes,
// agreement and KL of every configuration; answers that were generated; and per context: which method wins, how far
// methods spread, and what choosing per context gains over the best fixed method; and how well cheap predictions order
// the configurations, where they were made.
std::vector<ReportTable> quality_tables(std::span<const QualityRow> rows);

// Agreement against the share of bytes, a line a method (of tokens at 16 bits by how many are kept, of all tokens at
// fewer bits), for each model and way of asking; then for each context.
std::vector<Chart> quality_charts(std::span<const QualityRow> rows);

std::string to_markdown(std::span<const ReportTable> tables);
// One page, self-contained.
std::string to_html(std::span<const ReportTable> tables, std::span<const Chart> charts);

}  // namespace shale
