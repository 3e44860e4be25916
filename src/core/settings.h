// Run settings: TOML files whose every key is a field of some component's struct. One list of
// fields drives reading, --set, defaults, help, printing and the round trip; an unknown key or a
// wrong type is an error that names the nearest key, and so is a setting without effect.
//
//   struct ScheduleSettings { std::string kind = "cosine"; int64_t warmup_steps = 100; };
//   void list_fields(Fields& fields, ScheduleSettings& s) {
//     fields.choice("kind", s.kind, {"constant", "cosine"}, "shape of the learning rate");
//     fields.add("warmup_steps", &s.warmup_steps, "steps from zero to the full rate");
//   }
//
// A component owns its struct and its list; a whole run composes them under section names.
//
// A file may also say what goes with the value of another setting, wherever that was set:
//
//   [[when]]
//   latent.kappa_bits = "1/64"   # all of these hold:
//   set.latent.beta = 1.0        # set this, unless the command line does
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace freeformer {

// "0.125", "1e-3", "1/8"; nothing if it is none of them or not finite.
std::optional<double> parse_fraction(std::string_view text);

class Fields {
 public:
  // What a field may be. A double is written as 0.125, 3 or as a fraction, "1/8"; never as infinity
  // or NaN.
  using Target = std::variant<bool*, int64_t*, double*, std::string*, std::vector<std::string>*>;

  struct Field {
    std::string key;  // "section.name"
    Target target;
    std::string help;
    std::vector<std::string> choices;  // of a string; empty: anything
    std::string default_text;          // as it stood when the list was made, in TOML
    std::string set_by;                // "run.toml:12" or "--set a.b=c"; empty: nobody did
    bool idle = false;                 // has no effect beside the other settings
  };

  // Fields added by `list` go under section `name`; sections nest.
  void section(const std::string& name, const std::function<void(Fields&)>& list);

  void add(const std::string& name, Target target, const std::string& help);
  void choice(const std::string& name, std::string& target, std::vector<std::string> choices,
              const std::string& help);

  // Says that `key`, or every key of a section ("latent."), has no effect because of `reason`
  // ("latent.bits is 0"). Throws if somebody set it, unless it stands in the file and the command
  // line set the key that the reason names: then it is left out, as if nobody had set it, when
  // settings are written.
  void no_effect(const std::string& key, const std::string& reason);

  // Throws about the value of `key`: "run.toml:12: data.context is -1, expected 1 or more". Like
  // no_effect: kInvalidArgument if --set is to blame, else kInvalidConfig.
  [[noreturn]] void reject(const std::string& key, const std::string& expected) const;

  bool was_set(const std::string& key) const;

  const std::vector<Field>& all() const { return fields_; }

  // Reads a TOML text into the fields it names. `where` is the file's name for messages. Throws
  // kInvalidConfig with the line.
  void read(const std::string& toml_text, const std::string& where);

  // One "section.key=value" of the command line, stronger than a file read before. The value is as
  // in TOML, but strings and fractions stand without quotes, and a list is a,b or as in TOML.
  // Throws kInvalidArgument.
  void set(const std::string& assignment);

  // What the file's [[when]] entries set beside the present values, in their order; for after the
  // last set(). A condition on a key that `idle` names does not hold: its value means nothing.
  // Throws kInvalidConfig with the line.
  void apply_conditions(const std::function<bool(const std::string& key)>& idle = {});

  // All fields that have an effect with their present values, as TOML: reading it gives the same
  // values.
  std::string write() const;

  // Every key with its default, its meaning and its choices, for people.
  std::string explain() const;

 private:
  void append(const std::string& name, Target target, const std::string& help,
              std::vector<std::string> choices);
  const Field& at(const std::string& key) const;  // a key that is not there is a bug

  std::string prefix_;
  std::vector<Field> fields_;
  std::string text_, where_;  // the file that was read, whose conditions wait
};

}  // namespace freeformer
