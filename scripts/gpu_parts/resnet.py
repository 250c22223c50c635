"""ResNet-50 in plain PyTorch, for a machine without torchvision.

Source: He et al., "Deep Residual Learning for Image Recognition", CVPR 2016, table 1,
with the stride in the 3x3 convolution of a block.
"""

from torch import nn

# Blocks of a stage, and channels between their convolutions.
STAGES = ((3, 64), (4, 128), (6, 256), (3, 512))

# Ratio of a block's output channels to those between its convolutions.
WIDER = 4


class Block(nn.Module):
    """Three convolutions with a shortcut."""

    def __init__(self, inputs: int, between: int, stride: int):
        super().__init__()
        outputs = between * WIDER
        self.path = nn.Sequential(
            *convolution(inputs, between, 1, 1),
            nn.ReLU(inplace=True),
            *convolution(between, between, 3, stride),
            nn.ReLU(inplace=True),
            *convolution(between, outputs, 1, 1),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(*convolution(inputs, outputs, 1, stride))
        self.last = nn.ReLU(inplace=True)

    def forward(self, images):
        """Converts images [N, C, H, W] to images of the stage's channels and size."""
        return self.last(self.path(images) + self.shortcut(images))


def convolution(inputs: int, outputs: int, side: int, stride: int) -> list[nn.Module]:
    """Returns a convolution without bias, and the normalization after it."""
    layer = nn.Conv2d(inputs, outputs, side, stride, side // 2, bias=False)
    return [layer, nn.BatchNorm2d(outputs)]


def resnet(stages=STAGES, classes: int = 1000) -> nn.Module:
    """Maps images [N, 3, H, W] to scores [N, classes]; ResNet-50 with the default
    stages.
    """
    layers = [
        *convolution(3, 64, 7, 2),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
    ]
    inputs = 64
    for number, (blocks, between) in enumerate(stages):
        for block in range(blocks):
            stride = 2 if number > 0 and block == 0 else 1
            layers.append(Block(inputs, between, stride))
            inputs = between * WIDER
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes)
    )
