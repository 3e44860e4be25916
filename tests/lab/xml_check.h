// Is it well-formed? A small reader of the XML that the lab writes: elements, attributes in double
// quotes, five entities.
#pragma once

#include <cctype>
#include <string>
#include <string_view>
#include <vector>

namespace freeformer {

// What is wrong, with its surroundings; empty: nothing.
inline std::string xml_fault(std::string_view text) {
  std::vector<std::string> open;
  size_t at = 0, roots = 0;
  const auto fault = [&](const std::string& what) {
    return what + " at: " + std::string(text.substr(at, 80));
  };
  const auto is_name = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == ':';
  };
  const auto take_name = [&] {
    const size_t begin = at;
    while (at < text.size() && is_name(text[at])) ++at;
    return std::string(text.substr(begin, at - begin));
  };
  const auto skip_space = [&] {
    while (at < text.size() && std::isspace(static_cast<unsigned char>(text[at]))) ++at;
  };
  const auto is_entity = [&] {
    for (const std::string_view entity : {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"}) {
      if (text.substr(at).starts_with(entity)) return true;
    }
    return false;
  };
  if (text.starts_with("<!doctype html>\n")) at = 16;
  while (at < text.size()) {
    if (text[at] == '&' && !is_entity()) return fault("a bare &");
    if (text[at] != '<') {
      if (open.empty() && !std::isspace(static_cast<unsigned char>(text[at]))) {
        return fault("text outside of the root");
      }
      ++at;
      continue;
    }
    if (text.substr(at).starts_with("</")) {
      at += 2;
      const std::string name = take_name();
      if (open.empty() || open.back() != name) return fault("</" + name + "> closes nothing");
      if (at >= text.size() || text[at] != '>') return fault("no >");
      open.pop_back();
      ++at;
      continue;
    }
    ++at;
    const std::string name = take_name();
    if (name.empty()) return fault("a bare <");
    if (open.empty() && ++roots > 1) return fault("a second root");
    std::vector<std::string> attributes;
    for (skip_space(); at < text.size() && is_name(text[at]); skip_space()) {
      attributes.push_back(take_name());
      for (size_t i = 0; i + 1 < attributes.size(); ++i) {
        if (attributes[i] == attributes.back()) return fault("an attribute twice");
      }
      if (!text.substr(at).starts_with("=\"")) return fault("an attribute without a quoted value");
      for (at += 2; at < text.size() && text[at] != '"'; ++at) {
        if (text[at] == '<' || (text[at] == '&' && !is_entity())) return fault("a raw attribute");
      }
      ++at;
    }
    const bool empty = text.substr(at).starts_with("/>");
    if (!empty && (at >= text.size() || text[at] != '>')) return fault("no > of <" + name);
    if (!empty) open.push_back(name);
    at += empty ? 2 : 1;
  }
  if (!open.empty()) return "<" + open.back() + "> is not closed";
  return roots == 1 ? "" : "no root";
}

inline size_t occurrences(std::string_view text, std::string_view part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + part.size()))
    ++count;
  return count;
}

}  // namespace freeformer
