#include "ops/recompute.h"

#include <algorithm>

#include "core/error.h"

namespace freeformer::ops {
namespace {

using Function = std::function<Tensor(const std::vector<Tensor>&)>;
using torch::autograd::variable_list;

class Recompute : public torch::autograd::Function<Recompute> {
 public:
  // What travels from forward to backward. An IValue holds no std::function; a capsule does.
  struct Held : torch::CustomClassHolder {
    explicit Held(freeformer::ops::Function f) : function(std::move(f)) {}
    freeformer::ops::Function function;
  };

  static Tensor forward(torch::autograd::AutogradContext* context,
                        const c10::intrusive_ptr<Held>& held, at::TensorList inputs) {
    context->save_for_backward(inputs.vec());
    context->saved_data["function"] = torch::IValue::make_capsule(held);
    return held->function(inputs.vec());  // autograd is off in here
  }

  static variable_list backward(torch::autograd::AutogradContext* context, variable_list grads) {
    if (at::GradMode::is_enabled()) {
      fail(ErrorCode::kUnsupported, "recomputed blocks have no second derivative (create_graph)");
    }
    std::vector<Tensor> inputs;
    for (const Tensor& saved : context->get_saved_variables()) {
      inputs.push_back(saved.detach().requires_grad_(saved.requires_grad()));
    }
    const auto capsule = context->saved_data["function"].toCapsule();
    const torch::AutoGradMode with_grad(true);
    const Tensor out = static_cast<Held*>(capsule.get())->function(inputs);
    // Reaches the parameters as well as the inputs: both are leaves here.
    torch::autograd::backward({out}, {grads[0]});
    variable_list result = {Tensor()};  // none for the function itself
    for (const Tensor& input : inputs) result.push_back(input.grad());
    return result;
  }
};

}  // namespace

Tensor recompute(std::function<Tensor(const std::vector<Tensor>&)> function,
                 const std::vector<Tensor>& inputs) {
  const bool reaches_backward =
      !at::GradMode::is_enabled() ||
      std::any_of(inputs.begin(), inputs.end(), [](const Tensor& x) { return x.requires_grad(); });
  FF_CHECK(reaches_backward);
  // As a TensorList: of a std::vector LibTorch would not see that it holds tensors.
  return Recompute::apply(c10::make_intrusive<Recompute::Held>(std::move(function)),
                          at::TensorList(inputs));
}

}  // namespace freeformer::ops
