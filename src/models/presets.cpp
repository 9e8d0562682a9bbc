/// @file
/// The table of presets. A number that a source does not print is marked (inferred) in the preset's source.

#include <fmt/core.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "models/model.hpp"

namespace strata {
namespace {

struct TransformerDims {
  std::int64_t layers;
  std::int64_t hidden;
  std::int64_t heads;
  std::int64_t vocabulary;
  std::int64_t sequence_length;
};

constexpr std::string_view gpt2_source = "Radford et al. 2019, table 2, and the released models";
constexpr std::string_view megatron_source = "Narayanan et al., SC 2021, table 1: V 51200, s 2048, tied head";
constexpr std::string_view osdp_source =
    "OSDP (IJCAI 2023), table 1, which prints ranges, not rows; V 50257, s 1024, own head as minGPT (inferred)";
constexpr std::string_view oases_source =
    "Oases (2023), table 4; s 1024; V 51200 and tied head as Megatron's (inferred)";
constexpr std::string_view oases_pipeline_source =
    "Oases (2023), table 5; s 1024; V 51200 and tied head as Megatron's (inferred)";
constexpr std::string_view autoddl_source =
    "AutoDDL (2023), sec. 5; s 1024; V 50257 and tied head, which give the printed counts (inferred)";
constexpr std::string_view amsp_source = "AMSP (2024), sec. VI; V 32000, s 4096, ffn 8/3 h down to a multiple of 32";
constexpr std::string_view smollm_source =
    "Hugging Face, 2024, the released SmolLM-135M; epsilon of norms 1e-6, its own 1e-5 (this project)";
constexpr std::string_view vgg_source = "Simonyan & Zisserman 2014, table 1, dropout 0.5";
constexpr std::string_view resnet_source =
    "He et al. 2015, table 1; stride in the 3x3 convolution of a bottleneck, as torchvision's (inferred)";
constexpr std::string_view resnet_cifar_source =
    "CDP (ICML 2024), sec. 5; He et al. 2015, table 1, with the 3x3 stem usual at 32 pixels (inferred)";
constexpr std::string_view vit_source = "Dosovitskiy et al. 2021, table 1";
constexpr std::string_view own_source = "this project";

ModelOptions transformer(const TransformerDims& dims) {
  return {.layers = dims.layers,
          .hidden = dims.hidden,
          .heads = dims.heads,
          .vocabulary = dims.vocabulary,
          .sequence_length = dims.sequence_length};
}

class Table {
 public:
  std::vector<Preset> presets;

  void gpt(std::string name, const TransformerDims& dims, bool tied_head, std::string_view source) {
    ModelOptions options = transformer(dims);
    options.tied_head = tied_head;
    add(std::move(name), "gpt",
        fmt::format("GPT, {} layers of {}, {} heads, V {}, s {}, {} head", dims.layers, dims.hidden, dims.heads,
                    dims.vocabulary, dims.sequence_length, tied_head ? "tied" : "own"),
        source, std::move(options));
  }

  /// Layers of different width: pairs of (number of layers, width), heads of 64.
  void uneven_gpt(std::string name, const std::vector<std::pair<int, std::int64_t>>& runs, std::string_view source) {
    ModelOptions options{.vocabulary = 50257, .sequence_length = 1024};
    std::string text;
    for (const auto& [layers, width] : runs) {
      options.widths.insert(options.widths.end(), static_cast<std::size_t>(layers), width);
      text += fmt::format("{}{} layers of {}", text.empty() ? "" : " + ", layers, width);
    }
    options.heads = options.widths.front() / 64;
    add(std::move(name), "gpt", fmt::format("GPT, {}, heads of 64, V 50257, s 1024, own head", text), source,
        std::move(options));
  }

  void llama(std::string name, const TransformerDims& dims, std::string_view source) {
    add(std::move(name), "llama",
        fmt::format("LLaMA, {} layers of {}, {} heads, V {}, s {}", dims.layers, dims.hidden, dims.heads,
                    dims.vocabulary, dims.sequence_length),
        source, transformer(dims));
  }

  void vgg(std::string name, std::string description, ModelOptions options, std::string_view source) {
    add(std::move(name), "vgg", std::move(description), source, std::move(options));
  }

  void resnet(std::string name, std::string description, ModelOptions options, std::string_view source) {
    add(std::move(name), "resnet", std::move(description), source, std::move(options));
  }

  void vit(std::string name, std::string description, ModelOptions options, std::string_view source) {
    add(std::move(name), "vit", std::move(description), source, std::move(options));
  }

  void mlp(std::string name, std::vector<std::int64_t> widths, std::string_view source) {
    std::string text;
    for (const std::int64_t width : widths) {
      text += fmt::format("{}{}", text.empty() ? "" : "-", width);
    }
    add(std::move(name), "mlp", "MLP " + text, source, {.widths = std::move(widths)});
  }

 private:
  void add(std::string name, std::string family, std::string description, std::string_view source,
           ModelOptions options) {
    options.name = name;
    presets.push_back(
        {std::move(name), std::move(family), std::move(description), std::string(source), std::move(options)});
  }
};

void add_gpts(Table& table) {
  // Bytes as tokens: V 256.
  table.gpt("gpt-nano", {2, 64, 4, 256, 64}, true, own_source);
  table.gpt("gpt-micro", {4, 128, 4, 256, 128}, true, own_source);
  table.gpt("gpt-mini", {6, 192, 6, 256, 256}, true, own_source);

  table.gpt("gpt2-small", {12, 768, 12, 50257, 1024}, true, gpt2_source);
  table.gpt("gpt2-medium", {24, 1024, 16, 50257, 1024}, true, gpt2_source);
  table.gpt("gpt2-large", {36, 1280, 20, 50257, 1024}, true, gpt2_source);
  table.gpt("gpt2-xl", {48, 1600, 25, 50257, 1024}, true, gpt2_source);

  table.gpt("megatron-1.7b", {24, 2304, 24, 51200, 2048}, true, megatron_source);
  table.gpt("megatron-3.6b", {30, 3072, 32, 51200, 2048}, true, megatron_source);
  table.gpt("megatron-7.5b", {36, 4096, 32, 51200, 2048}, true, megatron_source);
  table.gpt("megatron-18.4b", {40, 6144, 48, 51200, 2048}, true, megatron_source);
  table.gpt("megatron-39.1b", {48, 8192, 64, 51200, 2048}, true, megatron_source);
  table.gpt("megatron-76.1b", {60, 10240, 80, 51200, 2048}, true, megatron_source);
  table.gpt("megatron-145.6b", {80, 12288, 96, 51200, 2048}, true, megatron_source);
  table.gpt("megatron-310.1b", {96, 16384, 128, 51200, 2048}, true, megatron_source);
  table.gpt("megatron-529.6b", {105, 20480, 128, 51200, 2048}, true, megatron_source);
  table.gpt("megatron-1008b", {128, 25600, 160, 51200, 2048}, true, megatron_source);

  // Heads of 64 where N&D and I&C print none, of 128 where layers are wide.
  table.gpt("mingpt-nd-48x1024", {48, 1024, 16, 50257, 1024}, false, osdp_source);
  table.gpt("mingpt-nd-48x1536", {48, 1536, 24, 50257, 1024}, false, osdp_source);
  table.gpt("mingpt-nd-96x1024", {96, 1024, 16, 50257, 1024}, false, osdp_source);
  table.gpt("mingpt-nd-96x1536", {96, 1536, 24, 50257, 1024}, false, osdp_source);
  table.gpt("mingpt-ws-2x6144", {2, 6144, 48, 50257, 1024}, false, osdp_source);
  table.gpt("mingpt-ws-4x6144", {4, 6144, 48, 50257, 1024}, false, osdp_source);
  table.gpt("mingpt-ws-4x8192", {4, 8192, 64, 50257, 1024}, false, osdp_source);
  table.gpt("mingpt-ws-2x12288", {2, 12288, 96, 50257, 1024}, false, osdp_source);
  table.uneven_gpt("mingpt-ic-24", {{12, 1024}, {12, 2048}}, osdp_source);
  table.uneven_gpt("mingpt-ic-96", {{82, 1024}, {12, 2048}, {2, 4096}}, osdp_source);

  for (const auto& [hidden, layers, heads] : {std::array{1024, 24, 16},
                                              {2048, 24, 32},
                                              {3072, 24, 48},
                                              {4096, 16, 64},
                                              {6144, 16, 96},
                                              {8192, 8, 128},
                                              {12288, 4, 192}}) {
    table.gpt(fmt::format("oases-{}", hidden), {layers, hidden, heads, 51200, 1024}, true, oases_source);
  }
  table.gpt("oases-18.4b", {40, 6144, 48, 51200, 1024}, true, oases_pipeline_source);
  table.gpt("oases-39.1b", {48, 8192, 64, 51200, 1024}, true, oases_pipeline_source);

  table.gpt("autoddl-0.35b", {24, 1024, 16, 50257, 1024}, true, autoddl_source);
  table.gpt("autoddl-5.8b", {28, 4096, 32, 50257, 1024}, true, autoddl_source);
  table.gpt("autoddl-6.8b", {8, 8192, 64, 50257, 1024}, true, autoddl_source);
  table.gpt("autoddl-deep", {36, 4096, 32, 50257, 1024}, true, autoddl_source);
  table.gpt("autoddl-16.5b", {20, 8192, 64, 50257, 1024}, true, autoddl_source);
  table.gpt("autoddl-35.8b", {44, 8192, 64, 50257, 1024}, true, autoddl_source);
}

void add_llamas(Table& table) {
  table.llama("llama-nano", {2, 64, 4, 256, 64}, own_source);
  table.presets.back().options.kv_heads = 2;
  table.presets.back().description += ", 2 key and value heads";
  table.llama("smollm-135m", {30, 576, 9, 49152, 2048}, smollm_source);
  table.presets.back().options.kv_heads = 3;
  table.presets.back().options.tied_head = true;
  table.presets.back().description += ", 3 key and value heads, tied head";
  table.llama("llama-7b", {32, 4096, 32, 32000, 4096}, amsp_source);
  table.llama("llama-13b", {40, 5120, 40, 32000, 4096}, amsp_source);
  table.llama("llama-30b", {60, 6144, 48, 32000, 4096}, amsp_source);
}

void add_others(Table& table) {
  table.vgg(
      "vgg-nano", "VGG, 11 layers, 8 to 32 channels, 32 pixels, 10 classes, classifier 32-32-10",
      {.layers = 11, .hidden = 32, .dropout = 0.0, .image_size = 32, .num_classes = 10, .widths = {8, 16, 16, 32, 32}},
      own_source);
  for (const std::int64_t layers : {11, 13, 16}) {
    table.vgg(fmt::format("vgg{}", layers), fmt::format("VGG, {} layers, 224 pixels, 1000 classes", layers),
              {.layers = layers, .hidden = 4096, .dropout = 0.5, .image_size = 224, .num_classes = 1000}, vgg_source);
  }
  // The stages leave one pixel of 512 channels: the usual classifier at 32 pixels is as narrow as that.
  for (const std::int64_t layers : {11, 13, 16}) {
    table.vgg(fmt::format("vgg{}-cifar", layers),
              fmt::format("VGG, {} layers, 32 pixels, 10 classes, classifier 512-512-10", layers),
              {.layers = layers, .hidden = 512, .dropout = 0.0, .image_size = 32, .num_classes = 10},
              "Simonyan & Zisserman 2014, stages; classifier 512-512-10 without dropout: this project");
  }
  table.resnet("resnet-nano", "ResNet, 18 layers, 8 to 32 channels, 16 pixels, 10 classes, CIFAR form",
               {.layers = 18, .image_size = 16, .num_classes = 10, .widths = {8, 8, 16, 32}}, own_source);
  for (const std::int64_t layers : {18, 50}) {
    table.resnet(fmt::format("resnet{}-cifar", layers),
                 fmt::format("ResNet, {} layers, 32 pixels, 10 classes, CIFAR form", layers),
                 {.layers = layers, .image_size = 32, .num_classes = 10}, resnet_cifar_source);
    table.resnet(fmt::format("resnet{}", layers), fmt::format("ResNet, {} layers, 224 pixels, 1000 classes", layers),
                 {.layers = layers, .image_size = 224, .num_classes = 1000}, resnet_source);
  }
  table.vit("vit-nano", "ViT, 2 layers of 32, 4 heads, patches of 4 in 16 pixels, 10 classes",
            {.layers = 2, .hidden = 32, .heads = 4, .image_size = 16, .patch_size = 4, .num_classes = 10}, own_source);
  table.vit("vit-tiny-cifar", "ViT, 12 layers of 192, 3 heads, patches of 4 in 32 pixels, 10 classes",
            {.layers = 12, .hidden = 192, .heads = 3, .image_size = 32, .patch_size = 4, .num_classes = 10},
            "Touvron et al. 2021, table 1: DeiT-Ti; patches for 32 pixels: this project");
  table.vit("vit-b16", "ViT-B/16, 12 layers of 768, 12 heads, patches of 16 in 224 pixels, 1000 classes",
            {.layers = 12, .hidden = 768, .heads = 12, .image_size = 224, .patch_size = 16, .num_classes = 1000},
            vit_source);
  table.mlp("mlp-tiny", {48, 64, 32, 10}, own_source);
  table.mlp("mlp-cifar", {3072, 512, 256, 10}, own_source);
  table.mlp("autoddl-mlp", {32768, 16384, 4096, 2048, 512}, "AutoDDL (2023), sec. 5.2.1, fig. 8");
}

}  // namespace

std::span<const Preset> presets() {
  static const std::vector<Preset> all = [] {
    Table table;
    add_gpts(table);
    add_llamas(table);
    add_others(table);
    return table.presets;
  }();
  return all;
}

}  // namespace strata
