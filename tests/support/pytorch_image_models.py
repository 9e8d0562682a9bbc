"""VGG, ResNet and ViT as PyTorch modules whose parameters bear strata's names: written from the papers and from
torchvision's definitions, so that a step of strata's models has something to be compared with that shares no line with
them."""

import itertools
import re

import torch
from torch import nn
from torch.nn import functional

BLOCKS = {18: (2, 2, 2, 2), 50: (3, 4, 6, 3)}

# By preset of strata: the module and what it is made with.
PRESETS = {
    "vgg13": lambda: Vgg((2, 2, 2, 2, 2), hidden=4096, dropout=0.5, image_size=224, num_classes=1000),
    "resnet-nano": lambda: Resnet(18, widths=(8, 8, 16, 32), image_size=16, num_classes=10),
    "resnet18-cifar": lambda: Resnet(18, image_size=32, num_classes=10),
    "resnet50-cifar": lambda: Resnet(50, image_size=32, num_classes=10),
    "resnet18": lambda: Resnet(18, image_size=224, num_classes=1000),
    "resnet50": lambda: Resnet(50, image_size=224, num_classes=1000),
    "vit-nano": lambda: Vit(2, hidden=32, heads=4, patch_size=4, image_size=16, num_classes=10),
    "vit-tiny-cifar": lambda: Vit(12, hidden=192, heads=3, patch_size=4, image_size=32, num_classes=10),
    "vit-b16": lambda: Vit(12, hidden=768, heads=12, patch_size=16, image_size=224, num_classes=1000),
}


class VggStage(nn.Module):
    def __init__(self, inputs, channels, num_convolutions):
        super().__init__()
        widths = [inputs] + [channels] * num_convolutions
        self.conv = nn.ModuleList(nn.Conv2d(a, b, 3, padding=1) for a, b in itertools.pairwise(widths))

    def forward(self, x):
        for conv in self.conv:
            x = functional.relu(conv(x), inplace=True)
        return functional.max_pool2d(x, 2)


class VggClassifier(nn.Module):
    """Pixels are flattened by row, column and channel."""

    def __init__(self, inputs, hidden, dropout, num_classes):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(inputs, hidden), nn.Linear(hidden, hidden)
        self.fc3 = nn.Linear(hidden, num_classes)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        x = x.permute(0, 2, 3, 1).flatten(1)
        for dense in (self.fc1, self.fc2):
            x = self.dropout(functional.relu(dense(x), inplace=True))
        return self.fc3(x)


class Vgg(nn.Module):
    """Without batch norm."""

    def __init__(self, convolutions, hidden, dropout, image_size, num_classes):
        super().__init__()
        self.image_size, self.num_classes = image_size, num_classes
        widths = (3, 64, 128, 256, 512, 512)
        self.block = nn.Sequential(
            *(VggStage(a, b, n) for (a, b), n in zip(itertools.pairwise(widths), convolutions, strict=True))
        )
        pixels = (image_size // 2 ** len(convolutions)) ** 2
        self.classifier = VggClassifier(pixels * widths[-1], hidden, dropout, num_classes)

    def forward(self, images):
        return self.classifier(self.block(images))


class ConvolutionAndNorm(nn.Module):
    """A convolution without bias that keeps the size, but for its stride, and batch norm behind it."""

    def __init__(self, inputs, outputs, kernel, stride=1):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
        self.norm = nn.BatchNorm2d(outputs)

    def forward(self, x):
        return self.norm(self.conv(x))


class Relu(nn.ReLU):
    """Remembers whose norm's output it cuts: that norm's bias has the sum of what it lets through backward."""

    def __init__(self, norm):
        super().__init__()
        self.norm = norm


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions or, with an expansion, 1x1, 3x3, 1x1; a projection where shapes change."""

    def __init__(self, inputs, channels, expansion, stride):
        super().__init__()
        outputs = channels * expansion
        if expansion == 1:
            self.num_convolutions = 2
            shapes = [(inputs, channels, 3, stride), (channels, outputs, 3, 1)]
        else:
            self.num_convolutions = 3
            shapes = [(inputs, channels, 1, 1), (channels, channels, 3, stride), (channels, outputs, 1, 1)]
        for number, (before, behind, kernel, of_stride) in enumerate(shapes, start=1):
            padding = kernel // 2
            setattr(self, f"conv{number}", nn.Conv2d(before, behind, kernel, of_stride, padding, bias=False))
            setattr(self, f"norm{number}", nn.BatchNorm2d(behind))
            is_last = number == len(shapes)
            setattr(self, "relu" if is_last else f"relu{number}", Relu(f"norm{number}"))
        has_projection = stride != 1 or inputs != outputs
        self.skip = ConvolutionAndNorm(inputs, outputs, 1, stride) if has_projection else nn.Identity()

    def forward(self, x):
        y = x
        for number in range(1, self.num_convolutions + 1):
            y = getattr(self, f"norm{number}")(getattr(self, f"conv{number}")(y))
            if number < self.num_convolutions:
                y = getattr(self, f"relu{number}")(y)
        return self.relu(y + self.skip(x))


class Resnet(nn.Module):
    def __init__(self, layers, image_size, num_classes, widths=(64, 128, 256, 512)):
        super().__init__()
        self.image_size, self.num_classes = image_size, num_classes
        self.is_small = image_size < 64  # the CIFAR form
        expansion = 1 if layers == 18 else 4
        self.stem = ConvolutionAndNorm(3, widths[0], *((3, 1) if self.is_small else (7, 2)))
        self.relu = Relu("stem.norm")
        blocks, inputs = [], widths[0]
        for stage, (channels, count) in enumerate(zip(widths, BLOCKS[layers], strict=True)):
            for i in range(count):
                blocks.append(ResidualBlock(inputs, channels, expansion, 2 if stage > 0 and i == 0 else 1))
                inputs = channels * expansion
        self.block = nn.Sequential(*blocks)
        self.head = nn.Linear(inputs, num_classes)

    def forward(self, images):
        x = self.relu(self.stem(images))
        if not self.is_small:
            x = functional.max_pool2d(x, 3, 2, 1)
        return self.head(self.block(x).mean(dim=(2, 3)))


class ClassToken(nn.Module):
    def __init__(self, tokens, hidden):
        super().__init__()
        self.token = nn.Parameter(0.02 * torch.randn(hidden))
        self.positions = nn.Parameter(0.02 * torch.randn(tokens + 1, hidden))

    def forward(self, x):
        return torch.cat([self.token.expand(len(x), 1, -1), x], dim=1) + self.positions


class Attention(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(hidden, eps=1e-6)
        self.qkv, self.proj = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)

    def forward(self, x):
        images, tokens, hidden = x.shape
        parts = self.qkv(self.norm(x)).view(images, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(*parts)
        return self.proj(y.transpose(1, 2).reshape(images, tokens, hidden))


class FeedForward(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.norm = nn.LayerNorm(hidden, eps=1e-6)
        self.fc1, self.fc2 = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        return self.fc2(functional.gelu(self.fc1(self.norm(x))))


class TransformerBlock(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.attn, self.mlp = Attention(hidden, heads), FeedForward(hidden)

    def forward(self, x):
        x = x + self.attn(x)
        return x + self.mlp(x)


class Vit(nn.Module):
    def __init__(self, layers, hidden, heads, patch_size, image_size, num_classes):
        super().__init__()
        self.image_size, self.num_classes = image_size, num_classes
        self.patch = nn.Conv2d(3, hidden, patch_size, patch_size)
        self.embedding = ClassToken((image_size // patch_size) ** 2, hidden)
        self.block = nn.Sequential(*(TransformerBlock(hidden, heads) for _ in range(layers)))
        self.final_norm = nn.LayerNorm(hidden, eps=1e-6)
        self.head = nn.Linear(hidden, num_classes)

    def forward(self, images):
        x = self.embedding(self.patch(images).flatten(2).transpose(1, 2))
        # All rows are normalised, as strata's model does, though the head reads the first alone.
        return self.head(self.final_norm(self.block(x))[:, 0])


def name_in_strata(name):
    """block.3.conv1.weight -> block[3].conv1.weight"""
    return re.sub(r"\.(\d+)\.", r"[\1].", name)


def as_in_strata(tensor):
    """Kernels of convolutions [out, in, height, width] are [out, height, width, in] there; other tensors are alike."""
    return tensor.permute(0, 2, 3, 1) if tensor.dim() == 4 else tensor
